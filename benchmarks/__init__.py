"""Every figure that the README quotes about speed and memory: ``make bench``."""
