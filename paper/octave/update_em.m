function [phi, rho_q, rho_g] = update_em (theta, phi, rho_q, rho_g, y, gamma)
  % Filter update and stochastic approximation E-step.
  m = numel (phi);
  joint = phi' .* theta.q;
  predicted = sum (joint, 1);
  r = joint ./ predicted;                                % r(i, k): from i, given that the chain is now in k
  phi = predicted .* exp (-(y - theta.mu) .^ 2 / (2 * theta.upsilon));
  phi = phi / sum (phi);
  rho_q = (1 - gamma) * rho_q * r + gamma * kron (eye (m), ones (m, 1)) .* repmat (r, m, 1);
  rho_g = (1 - gamma) * rho_g * r + gamma * kron (y .^ (0:2)', eye (m));
end
