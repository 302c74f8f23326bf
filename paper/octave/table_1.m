% Table 1: octave-cli table_1.m RECORD REPEATS
% Prints, for each method, the best time in seconds and the parameters that it ends with: q11 q22 mu1 mu2 upsilon.
arguments = argv ();
Y = load (arguments{1});
repeats = str2double (arguments{2});
start.q = [0.7 0.3; 0.5 0.5];
start.mu = [-0.5 0.5];
start.upsilon = 2;
nu = [0.5 0.5];
methods = {@() online_em(start, nu, Y, 0.6, 20), ...
           @() batch_em_recursive(start, nu, Y), ...
           @() batch_em_forward_backward(start, nu, Y)};
seconds = inf (1, 3);
for turn = 1:repeats
  for k = 1:3
    began = tic ();
    theta{k} = methods{k}();
    seconds(k) = min (seconds(k), toc (began));
  end
end
for k = 1:3
  printf ("%.17g ", seconds(k), theta{k}.q(1, 1), theta{k}.q(2, 2), theta{k}.mu, theta{k}.upsilon);
  printf ("\n");
end
