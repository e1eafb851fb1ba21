// Personalised PageRank where questions come to touch most nodes: power iteration from the seeds,
// x <- restart * seeds + (1 - restart) * P'x, with x = seeds at first (Page, Brin, Motwani and
// Winograd, "The PageRank citation ranking: bringing order to the web", 1999, section 2.6). A walk
// that has not ended counts where it is, so that errors shrink with the second eigenvalue of P and
// not with the first, as what a push leaves does: where the links are well mixed, a few steps give
// all ranks.
//
// Cost: O(links) a step, and log(left) / log(1 - restart) steps at most. Nodes that no walk has
// come to are passed over, so that the first steps, and questions that stay among few nodes, take
// what they touch. Time goes into fetching what links point to: up to 16 questions are walked side
// by side in float32 (8 in float64, where more is promised than float32 can keep), with their
// masses at a node on one line of the cache. Memory of a thread: 8 bytes a link (16 in float64) and
// 17 a node, for links are copied when they are read first, and 192 a node (12 or 24 for few
// questions).
//
// A walk ends when no score can be farther from the exact one than was asked for. P does not
// lengthen a vector in the 1-norm, so that without rounding |x* - x(t + 1)| <= (1 - restart)^2 /
// restart * |x(t) - x(t - 1)|. Rounding adds at most (1 - restart) / restart times what the step
// before did and what the last one did: a unit of what each addition comes to (Higham, "Accuracy
// and stability of numerical algorithms", 2002, section 4.2), which is added up along with the
// step. Both are in what is said to be left.
//
// Equal scores: the lower node. Results are the same whatever the batch, the threads and the
// instruction set, for what a question sums up is added in the order of nodes and links.
#pragma once

#include <cstdint>
#include <vector>

#include "walk/heaviest.h"
#include "walk/walk.h"

namespace pytrace::walk_detail {

// Whether questions are walked so: it follows from the size of the graph and the options alone, for
// a question has to find the same in any batch.
template <typename Target>
bool is_dense(const Links<Target>& links, const WalkOptions& how);

// As personalised_pagerank, which has checked all but the links.
template <typename Target>
void walk_densely(const Links<Target>& links, const Seeds& seeds, const WalkOptions& how,
                  int threads, std::vector<std::vector<Scored>>& found, std::vector<double>& left);

extern template bool is_dense(const Links<int32_t>&, const WalkOptions&);
extern template bool is_dense(const Links<int64_t>&, const WalkOptions&);
extern template void walk_densely(const Links<int32_t>&, const Seeds&, const WalkOptions&, int,
                                  std::vector<std::vector<Scored>>&, std::vector<double>&);
extern template void walk_densely(const Links<int64_t>&, const Seeds&, const WalkOptions&, int,
                                  std::vector<std::vector<Scored>>&, std::vector<double>&);

}  // namespace pytrace::walk_detail
