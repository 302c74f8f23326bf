/* Algorithm 2 of Cappe (2011), written by hand for a number of states M known when compiling: the yardstick of speed.
 * Same arithmetic as the compiled engine: log-densities, shifted by their maximum; log-likelihood accumulated. */
#include <math.h>
#include <string.h>

#ifndef M
#define M 2
#endif

typedef struct {
    double phi[M], q[M][M], mu[M], upsilon;
    double rho_q[M][M][M], rho_g[3][M][M];
    double log_likelihood;
} State;

/* Learns from y[0] to y[n - 1], after so many observations that it has seen. */
void online_em(State *state, const double *y, long n, long seen, long n_min) {
    State s = *state;
    for (long t = 0; t < n; t++) {
        double r[M][M], g[M], predicted[M], norm = 0.0, top;
        for (int k = 0; k < M; k++) {
            double total = 0.0;
            for (int i = 0; i < M; i++) total += r[i][k] = s.phi[i] * s.q[i][k];
            for (int i = 0; i < M; i++) r[i][k] /= total;
            predicted[k] = total;
            double z = y[t] - s.mu[k];
            g[k] = -0.5 * z * z / s.upsilon;
        }
        top = g[0];
        for (int k = 1; k < M; k++) top = g[k] > top ? g[k] : top;
        for (int k = 0; k < M; k++) norm += s.phi[k] = predicted[k] * exp(g[k] - top);
        for (int k = 0; k < M; k++) s.phi[k] /= norm;
        s.log_likelihood += top + log(norm) - 0.5 * log(6.283185307179586 * s.upsilon);

        double step = pow((double)(seen + t), -0.6), keep = 1.0 - step, power[3] = {1.0, y[t], y[t] * y[t]};
        for (int i = 0; i < M; i++)
            for (int j = 0; j < M; j++) {
                double row[M] = {0};
                for (int l = 0; l < M; l++)
                    for (int k = 0; k < M; k++) row[k] += s.rho_q[i][j][l] * r[l][k];
                for (int k = 0; k < M; k++) s.rho_q[i][j][k] = keep * row[k];
                s.rho_q[i][j][j] += step * r[i][j];
            }
        for (int d = 0; d < 3; d++)
            for (int i = 0; i < M; i++) {
                double row[M] = {0};
                for (int l = 0; l < M; l++)
                    for (int k = 0; k < M; k++) row[k] += s.rho_g[d][i][l] * r[l][k];
                for (int k = 0; k < M; k++) s.rho_g[d][i][k] = keep * row[k];
                s.rho_g[d][i][i] += step * power[d];
            }

        if (seen + t > n_min) {
            double weight = 0.0, spread = 0.0;
            for (int i = 0; i < M; i++) {
                double sq[M], row_sum = 0.0, sg[3];
                for (int j = 0; j < M; j++) {
                    sq[j] = 0.0;
                    for (int k = 0; k < M; k++) sq[j] += s.rho_q[i][j][k] * s.phi[k];
                    row_sum += sq[j];
                }
                for (int j = 0; j < M; j++) s.q[i][j] = sq[j] / row_sum;
                for (int d = 0; d < 3; d++) {
                    sg[d] = 0.0;
                    for (int k = 0; k < M; k++) sg[d] += s.rho_g[d][i][k] * s.phi[k];
                }
                s.mu[i] = sg[1] / sg[0];
                weight += sg[0];
                spread += sg[2] - s.mu[i] * s.mu[i] * sg[0];
            }
            s.upsilon = spread / weight;
        }
    }
    *state = s;
}
