function theta = online_em (theta, nu, Y, alpha, n_min)
  % Algorithm 2: theta.q (m x m), theta.mu (1 x m), theta.upsilon; steps n^-alpha.
  [phi, rho_q, rho_g] = begin_em (theta, nu, Y(1));
  for n = 1:numel (Y) - 1
    [phi, rho_q, rho_g] = update_em (theta, phi, rho_q, rho_g, Y(n + 1), n ^ -alpha);
    if n > n_min
      theta = maximize_em (phi, rho_q, rho_g);
    end
  end
end
