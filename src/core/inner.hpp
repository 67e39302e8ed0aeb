// The worst case of a vector of losses:
//
//     survey -> make_frame -> begin -> [ sweep -> join -> advance ]* -> conclude
#pragma once

#include <vector>

#include "chi2.hpp"
#include "curve.hpp"
#include "custom.hpp"
#include "frame.hpp"
#include "kl.hpp"
#include "quantile.hpp"
#include "refine.hpp"
#include "search.hpp"
#include "threads.hpp"

namespace drolearn::TARGET {

// From this many losses on, the first guess is the solution for a regular subsample.
inline constexpr size_t sample_from = size_t{1} << 15;

// Stride of the subsample; zero for no subsample.
inline size_t sample_stride(const Divergence& divergence, size_t n) {
    const bool nested = divergence.has_linear_pieces && divergence.family == Family::custom;
    return n < sample_from || nested ? 0 : n / (sample_from / 4);
}

// Searches give up after this many sweeps. Nested bisections take thousands.
inline constexpr int64_t most_sweeps = 50'000;

// Starts a search, at the multipliers `guess` if they are known (from a subsample, say). Cases that
// need no search start in the phase `write`.
inline Search begin(const Ball& ball, const Multipliers& guess) {
    const Divergence& divergence = ball.divergence;
    const Frame& frame = ball.frame;
    const bool cvar = divergence.family == Family::cvar;
    Search search;
    if (frame.bottom == 0.0 || (ball.rho == 0.0 && !cvar)) {
        search.phase = Phase::write;
        search.shape = Shape::base;
        return search;
    }
    // The tolerance covers the rounding error of max_divergence.
    if (ball.rho >= frame.max_divergence * (1.0 - 1e-14) && !cvar) {
        search.phase = Phase::write;
        search.shape = Shape::peak;
        return search;
    }
    const double alpha = guess.alpha * frame.scale, lam = guess.lam * frame.scale - frame.top;
    const bool known = (alpha > 0.0 || cvar) && alpha < infinity && lam < 0.0;
    search.shift = 0.5 * frame.bottom;
    if (divergence.is_quantile()) {
        const double target = cvar ? 1.0 - divergence.parameter : ball.rho;
        double pivot = frame.bottom * (1.0 - target);
        if (known) pivot = lam - 0.5 * alpha;
        search.phase = Phase::search;
        search.quantile = {std::clamp(pivot, frame.bottom, 0.0), 0.0, frame.bottom, 0.0, 0.0, 1.0};
        return search;
    }
    search.phase = known ? Phase::search : Phase::moments;
    if (divergence.family == Family::chi2) {
        search.chi2 = {-infinity, 0.0};
        if (known) search.chi2.level = search.shift = 0.5 * (lam - 2.0 * alpha);
    } else if (divergence.family == Family::kl) {
        search.kl = {known ? 1.0 / alpha : 0.0, {}};
    } else if (known) {
        search.curve.beta = 1.0 / alpha;
        start_newton(ball, search.curve, lam);
    }
    return search;
}

// Writes the base weights, or all mass on the largest loss; ties share it.
template <class Weights>
PER_CHUNK WriteSums write_ends(Chunk<Weights> chunk, const Ball& ball, Shape shape, double* out) {
    const Frame frame = ball.frame;
    const bool all = shape == Shape::base;
    const double share = all ? frame.unit : frame.unit / frame.peak;
    const double* z = chunk.z;
    const auto b = chunk.b;
    const size_t n = chunk.n;
    double mass = 0, first = 0;
#pragma omp simd reduction(+ : mass, first)
    for (size_t i = 0; i < n; ++i) {
        const double d = frame.depth_of<Weights>(z[i]);
        const double p = select(all | (d == 0.0), b[i] * share, 0.0);
        out[i] = p;
        mass += p;
        first += p * d;
    }
    return {mass, first, 0.0, 0.0};
}

// Writes the weights of one chunk.
template <class Weights>
WriteSums write_chunk(Chunk<Weights> chunk, const Ball& ball, const Search& search, double* out) {
    if (search.shape != Shape::interior) return write_ends(chunk, ball, search.shape, out);
    switch (ball.divergence.family) {
        case Family::chi2: return write_chi2(chunk, ball.frame, search, out);
        case Family::kl: return write_kl(chunk, ball.frame, search, out);
        case Family::total_variation:
        case Family::cvar: return write_quantile(chunk, ball, search, out);
        default:
            return visit(ball.divergence, [&](const auto& phi) -> WriteSums {
                if constexpr (requires { phi.half(0.0); }) {
                    return write_mixture(phi, chunk, ball, search, out);
                } else {
                    return {};  // custom divergences: see `sweep`
                }
            });
    }
}

// Processes one chunk as the phase of the search demands.
template <class Weights>
Sums sweep_chunk(Chunk<Weights> chunk, const Ball& ball, const Search& search, double* out) {
    const Divergence& divergence = ball.divergence;
    Sums sums;
    if (search.phase == Phase::write) {
        sums.write = write_chunk(chunk, ball, search, out);
    } else if (search.phase == Phase::refine) {
        visit(divergence, [&](const auto& phi) {
            if constexpr (requires { phi.near_one(0.0, 0.0); }) {
                sums.curve = refine_sums(phi, chunk, ball.frame, search.refine, out);
            }
        });
    } else if (divergence.family == Family::chi2) {
        sums.moments = moments(chunk, ball.frame, search.chi2.level, search.shift);
    } else if (search.phase == Phase::moments) {
        sums.moments = moments(chunk, ball.frame, -infinity, search.shift);
    } else if (divergence.family == Family::kl) {
        sums.exponential = exponential_sums(chunk, ball.frame, search.kl.beta);
    } else if (divergence.is_quantile()) {
        sums.pivot = pivot_sums(chunk, ball.frame, search.quantile.pivot);
    } else {
        visit(divergence, [&](const auto& phi) {
            if constexpr (requires { phi.half(0.0); }) {
                sums.curve = curve_sums(phi, chunk, ball, search, out);
            }
        });
    }
    return sums;
}

inline Sums sweep_chunk(const Losses& losses, const Ball& ball, const Search& search, double* out) {
    return with_weights(losses, [&](auto chunk) { return sweep_chunk(chunk, ball, search, out); });
}

// Whether a sweep calls a user's functions.
inline bool is_custom_sweep(const Ball& ball, const Search& search) {
    if (ball.divergence.family != Family::custom || search.phase == Phase::moments) return false;
    return search.phase != Phase::write || search.shape == Shape::interior;
}

// Processes some chunks of a custom divergence; false if a user's function raised an exception.
PER_CHUNK inline bool sweep_custom(CustomCurve& curve, const Ball& ball, const Search& search,
                                   const Losses& losses, double* out, Sums* parts) {
    if (search.phase == Phase::write) return curve.write(ball, losses, search, out, parts);
    if (search.phase == Phase::refine) return curve.refine_sums(ball, losses, search, out, parts);
    return curve.sums(ball, losses, search, out, parts);
}

// Processes all chunks and writes the sums of each to `parts`.
inline Status sweep(const Ball& ball, const Search& search, const Losses& losses, double* out,
                    Sums* parts, Workers& workers) {
    const size_t chunks = chunk_count(losses.n);
    if (is_custom_sweep(ball, search)) {  // one thread: the functions may be Python functions
        CustomCurve curve(ball.divergence);
        for (size_t first = 0; first < chunks; first += custom_chunks) {
            if (!workers.poll()) return Status::interrupted;
            const size_t start = first * chunk_size;
            const size_t stop = std::min(start + custom_chunks * chunk_size, losses.n);
            const Losses part = losses.part(start, stop);
            if (!sweep_custom(curve, ball, search, part, out + start, parts + first)) {
                return Status::callback_failed;
            }
        }
        return Status::ok;
    }
    if (chunks == 1) {
        parts[0] = sweep_chunk(losses, ball, search, out);
        return Status::ok;
    }
    const auto body = [&](size_t k) {
        parts[k] = sweep_chunk(losses.chunk(k), ball, search, out + k * chunk_size);
    };
    return workers.run(chunks, body) ? Status::ok : Status::interrupted;
}

// Adds up the sums of all chunks, in order.
inline Sums join(const Ball& ball, const Search& search, const Sums* parts, size_t chunks) {
    Sums total = parts[0];
    const Family family = ball.divergence.family;
    for (size_t k = 1; k < chunks; ++k) {
        if (search.phase == Phase::write) {
            total.write.join(parts[k].write);
        } else if (search.phase == Phase::refine) {
            total.curve.join(parts[k].curve);
        } else if (search.phase == Phase::moments || family == Family::chi2) {
            total.moments.join(parts[k].moments);
        } else if (family == Family::kl) {
            total.exponential.join(parts[k].exponential);
        } else if (ball.divergence.is_quantile()) {
            total.pivot.join(parts[k].pivot);
        } else {
            total.curve.join(parts[k].curve);
        }
    }
    return total;
}

// Checks that the weights sum to one and, for χ², that D = ρ.
inline void check_weights(const Ball& ball, Search& search) {
    const WriteSums& sums = search.sums.write;
    search.phase = Phase::done;
    if (search.shape != Shape::interior || search.rescaled) return;
    if (ball.divergence.family == Family::chi2 && search.rounds < 60) {
        bool right = std::fabs(sums.mass - 1.0) <= 1e-9 && close_enough(sums.divergence, ball.rho);
        right |= search.chi2.level > -1e-80;  // almost tied losses share the mass evenly
        if (!right) {
            search.phase = Phase::search;  // the predicted active set was wrong
            return;
        }
    }
    if (ball.divergence.is_curve() && correct_share(ball, search)) return;
    if (std::fabs(sums.mass - 1.0) > 2e-13) {
        // The norm has lost digits because the losses differ only in their last digits.
        search.norm *= sums.mass;
        search.rescaled = true;
        search.phase = Phase::write;
    }
}

// α and λ in units of d.
inline Multipliers multipliers(const Ball& ball, const Search& search) {
    const Divergence& divergence = ball.divergence;
    if (search.shape == Shape::peak) return {0.0, 0.0};
    if (search.shape == Shape::base) {
        if (ball.frame.bottom < 0.0) return {infinity, search.sums.write.first};
        return {0.0, 0.0};
    }
    if (search.refine.refined) {
        const RefineState& state = search.refine;
        return {1.0 / state.beta, state.shift - (divergence.slope_one + state.nu) / state.beta};
    }
    switch (divergence.family) {
        case Family::chi2:
            return {0.5 * search.norm, search.shift + (search.chi2.level + search.norm)};
        case Family::kl: return {1.0 / search.kl.beta, std::log(search.norm) / search.kl.beta};
        case Family::total_variation: return {-search.quantile.pivot, 0.5 * search.quantile.pivot};
        case Family::cvar: return {0.0, search.quantile.pivot};
        default:
            const double t = divergence.origin + divergence.slope_one + search.curve.x;
            return {1.0 / search.curve.beta, -t / search.curve.beta};
    }
}

// One step of the solver, from the sums of the last sweep.
inline void advance_search(const Ball& ball, Search& search) {
    const Divergence& divergence = ball.divergence;
    const bool moments = search.phase == Phase::moments;
    if (divergence.family == Family::chi2) {
        advance_chi2(ball, search);
    } else if (divergence.is_quantile()) {
        advance_quantile(ball, search);
    } else if (divergence.family == Family::kl && moments) {
        search.kl.beta = beta_of_moments(ball, search);
    } else if (divergence.family == Family::kl) {
        advance_kl(ball, search);
    } else if (moments) {
        advance_curve_moments(ball, search);
    } else {
        advance_curve(ball, search);
    }
}

// Computes from the sums of a sweep what the next sweep has to do.
inline void advance(const Ball& ball, Search& search) {
    ++search.rounds;
    if (search.rounds > most_sweeps) {
        search.phase = Phase::done;
        search.shape = Shape::failed;
    } else if (search.phase == Phase::write) {
        check_weights(ball, search);
    } else if (search.phase == Phase::refine) {
        advance_refine(ball, search);
    } else {
        advance_search(ball, search);
        const bool solved = search.phase == Phase::write || search.phase == Phase::done;
        if (solved && search.shape == Shape::interior && !search.refine.tried && can_refine(ball)) {
            Multipliers start = multipliers(ball, search);
            start.lam += ball.divergence.slope_one * start.alpha;  // λ of φ with φ'(1) = 0
            start_refine(ball, search, start);
        }
    }
}

// Σ p, Σ p d and D of the weights written by the last sweep.
inline WriteSums sums_of_weights(const Ball& ball, const Search& search) {
    const double unit = ball.frame.unit;
    const bool interior = search.shape == Shape::interior;
    // The sums of a curve are over raw base weights.
    const CurveSums& raw = search.sums.curve;
    if (interior && search.refine.refined) {
        return {1.0 + raw.total * unit, raw.first * unit, raw.divergence * unit, 0.0};
    }
    if (interior && ball.divergence.is_curve() && !search.curve.mixed) {
        return {raw.total * unit, raw.first * unit, raw.divergence * unit, 0.0};
    }
    return search.sums.write;
}

// Value, divergence and duality gap of the weights written by the last sweep.
inline Answer conclude(const Ball& ball, const Search& search) {
    const Divergence& divergence = ball.divergence;
    const Frame& frame = ball.frame;
    const WriteSums sums = sums_of_weights(ball, search);
    const auto [alpha, lam] = multipliers(ball, search);
    double value = sums.first / sums.mass, achieved = sums.divergence, dual = 0.0;
    if (search.shape == Shape::base) {
        achieved = 0.0;
        dual = value;
    } else if (search.shape == Shape::peak) {
        achieved = frame.max_divergence;
        value = 0.0;
    } else if (search.refine.refined) {
        const double shifted = lam + divergence.slope_one * alpha;  // λ of φ with φ'(1) = 0
        dual = sums.first + shifted * (1.0 - sums.mass) + alpha * (ball.rho - achieved);
    } else if (divergence.family == Family::chi2) {
        // With s = (d − η)₊/(2α): α φ*(t) = α (s² − 1), so the dual value is η + α (2 + ρ + D).
        dual = search.shift + (search.chi2.level + alpha * (2.0 + ball.rho + achieved));
    } else if (divergence.family == Family::kl) {
        achieved = std::max(search.kl.beta * value - std::log(search.norm), 0.0);
        dual = alpha * ball.rho + lam;
    } else if (divergence.family == Family::total_variation) {
        dual = sums.dual + alpha * ball.rho + search.quantile.pivot;
    } else if (divergence.family == Family::cvar) {
        achieved = 0.0;
        dual = lam + sums.dual / divergence.parameter;
    } else if (search.curve.mixed) {
        dual = search.curve.dual;
    } else {
        dual = lagrangian(ball, search.curve.beta, search.curve.x,
                          {sums.mass, sums.first, sums.divergence});
    }
    dual = std::min(dual, 0.0);  // no weighted mean exceeds the largest loss
    // These checks fail only for a custom φ with inconsistent functions, or for base weights of
    // extreme range. In small balls α is large, and so is the rounding error of the dual value.
    const double scale = -frame.bottom, gap = dual - value;
    bool right = achieved <= ball.rho * (1.0 + 1e-6) + 1e-12 && std::fabs(sums.mass - 1.0) <= 1e-9;
    right = right && -1e-9 * scale - 1e-15 * alpha <= gap && gap <= 1e-6 * scale;
    Answer answer;
    answer.status = right && search.shape != Shape::failed ? Status::ok : Status::not_solved;
    answer.value = (frame.top + value) / frame.scale;
    answer.achieved = achieved;
    answer.multipliers = {alpha / frame.scale, (frame.top + lam) / frame.scale};
    answer.gap = std::max(gap, 0.0) / frame.scale;
    answer.sweeps = search.rounds;
    return answer;
}

// Surveys all chunks; false if interrupted.
inline bool survey_all(const Losses& losses, Survey* parts, Workers& workers) {
    const size_t chunks = chunk_count(losses.n);
    // The mass of the largest loss of a chunk matters only if no other chunk has a larger loss.
    // Each task is a strip of chunks that remembers the largest loss so far.
    constexpr size_t strip = 16;
    return workers.run((chunks + strip - 1) / strip, [&](size_t task) {
        double known = -infinity;
        for (size_t k = task * strip; k < std::min((task + 1) * strip, chunks); ++k) {
            parts[k] = survey(losses.chunk(k), known);
            known = std::max(known, parts[k].high);
        }
    });
}

// Solves one worst case, starting at the multipliers `guess` if they are known.
inline Answer solve_from(const Divergence& divergence, double rho, const Losses& losses,
                         const Multipliers& guess, double* out, Workers& workers) {
    Answer failed;
    const size_t chunks = chunk_count(losses.n);
    // No allocation for one chunk: stochastic solvers make billions of calls with a few losses.
    Sums one;
    Survey total;
    std::vector<Sums> many;
    std::vector<Survey> surveys;
    if (chunks == 1) {
        total = survey(losses, -infinity);
    } else {
        surveys.resize(chunks);
        many.resize(chunks);
        if (!survey_all(losses, surveys.data(), workers)) {
            failed.status = Status::interrupted;
            return failed;
        }
        for (const Survey& part : surveys) total.join(part);
    }
    if (!(total.finite_check == 0.0)) {
        failed.status = Status::not_finite;
        return failed;
    }
    if (total.mass == 0.0) return failed;  // a subsample of weight zero gives no guess
    Sums* parts = chunks == 1 ? &one : many.data();
    const Ball ball{divergence, make_frame(divergence, losses.n, total), rho};
    Search search = begin(ball, guess);
    while (search.phase != Phase::done) {
        failed.status = sweep(ball, search, losses, out, parts, workers);
        if (failed.status != Status::ok) return failed;
        search.sums = join(ball, search, parts, chunks);
        advance(ball, search);
    }
    return conclude(ball, search);
}

// Some of the losses, with weights that make them represent all.
struct Sample {
    std::vector<double> z, b;

    void add(double loss, double weight) {
        z.push_back(loss);
        b.push_back(weight);
    }
    Losses losses() const { return {z.data(), b.data(), z.size()}; }
};

// Every stride-th loss. If φ has a finite slope at infinity, the upper tail is complete: the
// largest losses then get weights far above their shares, and a subsample alone would be a bad
// first guess.
inline Sample draw_sample(const Divergence& divergence, const Losses& losses, size_t stride) {
    const auto weight = [&](size_t i) { return losses.b ? losses.b[i] : 1.0; };
    Sample sample;
    double cutoff = infinity;
    const size_t size = (losses.n + stride - 1) / stride;
    if (divergence.is_curve() && divergence.origin > 0.0) {
        std::vector<double> z(size);
        for (size_t i = 0; i < size; ++i) z[i] = losses.z[i * stride];
        const auto tail = z.end() - static_cast<ptrdiff_t>(size / 256);
        std::nth_element(z.begin(), tail, z.end());
        cutoff = *tail;
        for (size_t i = 0; i < losses.n && sample.z.size() <= size; ++i) {
            if (losses.z[i] > cutoff) sample.add(losses.z[i], weight(i));
        }
        if (sample.z.size() > size) {  // the subsample is nothing like the losses
            sample = {};
            cutoff = infinity;
        }
    }
    for (size_t i = 0; i < losses.n; i += stride) {
        if (!(losses.z[i] > cutoff))
            sample.add(losses.z[i], weight(i) * static_cast<double>(stride));
    }
    return sample;
}

// Writes the worst-case weights of the losses to `out`.
//
// Many losses are solved in two stages: first a sample, whose multipliers are within about one
// percent of the solution, then all losses starting from these.
inline Answer solve(const Divergence& divergence, double rho, const Losses& losses, double* out,
                    Workers& workers) {
    if (rho < smallest_radius) rho = 0.0;
    const size_t stride = sample_stride(divergence, losses.n);
    Multipliers guess;
    if (stride > 0) {
        const Sample sample = draw_sample(divergence, losses, stride);
        std::vector<double> weights(sample.z.size());
        const Answer answer =
            solve_from(divergence, rho, sample.losses(), guess, weights.data(), workers);
        const bool stop = answer.status == Status::interrupted ||
                          answer.status == Status::callback_failed ||
                          answer.status == Status::not_finite;
        if (stop) return answer;
        guess = answer.multipliers;
    }
    return solve_from(divergence, rho, losses, guess, out, workers);
}

}  // namespace drolearn::TARGET
