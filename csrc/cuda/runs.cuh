// The host's side of selection.cuh: how large the parts are, the memory of their runs, the launches
// that merge them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/packed.h"
#include "cuda/selection.cuh"

namespace pytrace::cuda {

inline int64_t segments_of(int64_t items) {
  return std::max<int64_t>(1, (items + kSegment - 1) / kSegment);
}

// Parts as the host knows them, and their place on the card.
struct HostParts {
  std::vector<int64_t> starts;  // empty: all of size `each`
  int64_t each = 0;
  int64_t most = 0;  // of any part
  PackedInput::Part<int64_t> part;

  template <typename Size>
  static HostParts of(int64_t count, bool alike, const Size& size) {
    HostParts parts;
    if (alike) {
      parts.each = parts.most = size(0);
      return parts;
    }
    parts.starts.reserve(static_cast<size_t>(count + 1));
    parts.starts.push_back(0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t own = size(i);
      parts.most = std::max(parts.most, own);
      parts.starts.push_back(parts.starts.back() + own);
    }
    return parts;
  }

  int64_t start(int64_t i) const {
    return starts.empty() ? i * each : starts[static_cast<size_t>(i)];
  }
  void add_to(PackedInput& input) {
    part = input.add(starts.data(), static_cast<int64_t>(starts.size()));
  }
  Parts on_card() const { return {starts.empty() ? nullptr : part.data(), each}; }
};

// The memory of runs; two sets where they are merged in pairs.
struct RunMemory {
  int64_t capacity = 0;
  bool merged = false;
  Workspace::Piece<Entry> entries[2];
  Workspace::Piece<int64_t> lengths[2];

  static int64_t bytes_of_run(int64_t capacity, bool merged) {
    return (capacity * static_cast<int64_t>(sizeof(Entry)) + 8) * (merged ? 2 : 1);
  }
  void take(Workspace& workspace, int64_t runs) {
    for (int i = 0; i < (merged ? 2 : 1); ++i) {
      entries[i] = workspace.take<Entry>(runs * capacity);
      lengths[i] = workspace.take<int64_t>(runs);
    }
  }
  Runs runs(int which, const Parts& segments, int64_t first, int64_t count) const {
    return {segments, first, count, capacity, entries[which].data(), lengths[which].data()};
  }
};

// Merges the sorted runs of every group into its first; returns where they are in the end.
inline Runs merge_all(cudaStream_t stream, const RunMemory& memory, Runs runs, int64_t most_runs,
                      int64_t count, int64_t wanted) {
  int now = 0;
  for (int64_t apart = 1; apart < most_runs; apart *= 2) {
    const Runs to = memory.runs(1 - now, runs.segments, runs.first, runs.count);
    launch(stream, dim3(grid_of(count, 1)), dim3(kSelectThreads), 0, merge_runs, runs, to, apart,
           wanted);
    runs = to;
    now = 1 - now;
  }
  return runs;
}

}  // namespace pytrace::cuda
