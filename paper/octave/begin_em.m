function [phi, rho_q, rho_g] = begin_em (theta, nu, y)
  % Filter and statistic at the first observation.
  m = numel (nu);
  phi = nu .* exp (-(y - theta.mu) .^ 2 / (2 * theta.upsilon));
  phi = phi / sum (phi);
  rho_q = zeros (m * m, m);                              % row i + (j - 1) m: transitions from i to j
  rho_g = kron (y .^ (0:2)', eye (m));                   % row i + d m: y^d in state i
end
