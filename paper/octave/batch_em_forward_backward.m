function theta = batch_em_forward_backward (theta, nu, Y)
  % One iteration of batch EM by forward-backward smoothing.
  n = numel (Y);
  m = numel (nu);
  g = exp (-(Y - theta.mu) .^ 2 / (2 * theta.upsilon));  % Y is a column
  phi = zeros (n, m);
  beta = ones (n, m);
  scale = zeros (n, 1);
  predicted = nu;
  for t = 1:n
    joint = predicted .* g(t, :);
    scale(t) = sum (joint);
    phi(t, :) = joint / scale(t);
    predicted = phi(t, :) * theta.q;
  end
  for t = n:-1:2
    beta(t - 1, :) = (g(t, :) .* beta(t, :)) * theta.q' / scale(t);
  end
  smoothed = phi .* beta;
  S_q = theta.q .* (phi(1:end - 1, :)' * (g(2:end, :) .* beta(2:end, :) ./ scale(2:end)));
  S_g = smoothed' * Y .^ (0:2);
  theta.q = S_q ./ sum (S_q, 2);
  theta.mu = (S_g(:, 2) ./ S_g(:, 1))';
  theta.upsilon = sum (S_g(:, 3) - (theta.mu') .^ 2 .* S_g(:, 1)) / sum (S_g(:, 1));
end
