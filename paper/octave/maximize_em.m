function theta = maximize_em (phi, rho_q, rho_g)
  % M-step, from S = sum over k of rho(., k) phi(k).
  m = numel (phi);
  S_q = reshape (rho_q * phi', m, m);
  S_g = reshape (rho_g * phi', m, 3);
  theta.q = S_q ./ sum (S_q, 2);
  theta.mu = (S_g(:, 2) ./ S_g(:, 1))';
  theta.upsilon = sum (S_g(:, 3) - (theta.mu') .^ 2 .* S_g(:, 1)) / sum (S_g(:, 1));
end
