// Personalised PageRank where questions come to touch most nodes: power iteration from the seeds,
// x <- restart * seeds + (1 - restart) * P'x, with x = seeds at first (Page, Brin, Motwani and
// Winograd, "The PageRank citation ranking: bringing order to the web", 1999, section 2.6). A walk
// that has not ended counts where it is, so that errors shrink with the second eigenvalue of P and
// not with the first, as what a push leaves does: where the links are well mixed, a few steps give
// all ranks.
//
// Cost: O(links + nodes) a call, to check links and to copy what tells where to read and write;
// then O(links) a step, and log(left) / log(1 - restart) steps at most. Nodes that no walk has come
// to are passed over, so that the first steps take what they touch. Time goes into fetching what
// links point to: up to 16 questions are walked side by side in float32 (8 in float64, where more
// is promised than float32 can keep), with their masses at a node on one line of the cache. Memory:
// 4 bytes a link and some 40 a node, and 192 a node and thread (12 or 24 for few questions).
//
// A walk ends when no score can be farther from the exact one than was asked for. P does not
// lengthen a vector in the 1-norm, so that without rounding |x* - x(t + 1)| <= (1 - restart)^2 /
// restart * |x(t) - x(t - 1)|. With it (Higham, "Accuracy and stability of numerical algorithms",
// 2002, section 4.2) a step is off by at most d + 5 units at a node with d links to it, times what
// is there; and since x(t + 1) >= restart * x(t), all steps together by sum((d + 5) * x) /
// restart^2 units at most. Both are in what is said to be left.
//
// Equal scores: the lower node. Results are the same whatever the batch, the threads and the
// instruction set, for the sums of a question are added up in the order of nodes and links.
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
