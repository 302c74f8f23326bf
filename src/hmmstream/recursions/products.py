"""Sums of products of many numbers a row, in tiles that stay in registers. A library would let threads wait."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from hmmstream.arrays import FloatArray
from hmmstream.compilable import Compilable, workspace
from hmmstream.recursions.bridge import compiled
from hmmstream.recursions.vectors import load, spread, store


class Tile(Compilable):
    """A part of a matrix, of a size that is known when compiling."""

    constants: ClassVar[tuple[str, ...]] = ("height", "width", "size")
    height, width, size = 4, 8, 32


TILE = Tile()


def padded(n: int) -> int:
    """The number of columns that holds ``n`` of them in whole tiles."""
    return -(-n // TILE.width) * TILE.width


@compiled
def add_products(
    tile: Any,
    numbers: FloatArray,
    weighted: FloatArray,
    n_together: int,
    total: FloatArray,
    outer: FloatArray,
    scatter: FloatArray,
) -> None:
    """Add the rows of ``weighted``, which are those of ``numbers`` times a weight each, and products, to sums of them.

    To ``outer`` the products of each row with itself, weighted once, are added, and to ``scatter`` those of the sum of
    each ``n_together`` rows. There are as many numbers in a row as tiles are wide, or a multiple of it.
    """
    p = numbers.shape[1]
    sums = np.empty(p)
    products = workspace(tile.size)
    for first in range(0, len(numbers), n_together):
        last = min(first + n_together, len(numbers))
        for b in range(0, p, tile.width):
            part = spread(0.0, tile.width)
            for row in range(first, last):
                part = part + load(weighted, row * p + b, tile.width)
            store(sums, b, part)
            store(total, b, load(total, b, tile.width) + part)
        for a in range(0, p, tile.height):
            for b in range(0, a + tile.height, tile.width):  # up to the diagonal
                for i in range(tile.height):
                    store(products, i * tile.width, spread(0.0, tile.width))
                for row in range(first, last):
                    right = load(numbers, row * p + b, tile.width)
                    for i in range(tile.height):
                        product = load(products, i * tile.width, tile.width) + weighted[row, a + i] * right
                        store(products, i * tile.width, product)
                for i in range(tile.height):
                    at = (a + i) * p + b
                    store(outer, at, load(outer, at, tile.width) + load(products, i * tile.width, tile.width))
                    store(scatter, at, load(scatter, at, tile.width) + sums[a + i] * load(sums, b, tile.width))
    for a in range(p):
        for b in range(a):
            outer[b, a], scatter[b, a] = outer[a, b], scatter[a, b]
