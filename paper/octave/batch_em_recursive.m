function theta = batch_em_recursive (theta, nu, Y)
  % One iteration of batch EM by Proposition 1: all observations have equal weight.
  [phi, rho_q, rho_g] = begin_em (theta, nu, Y(1));
  for n = 1:numel (Y) - 1
    [phi, rho_q, rho_g] = update_em (theta, phi, rho_q, rho_g, Y(n + 1), 1 / (n + 1));
  end
  theta = maximize_em (phi, rho_q, rho_g);
end
