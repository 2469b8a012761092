#include "paper/segment_walk.h"

namespace fsdp::paper {

namespace {

/// From `points[first]` to `points[last]`.
Stretch stretch_of(const std::vector<MemoryPoint>& points, std::size_t first, std::size_t last,
                   bool counts_gradients) {
  const auto since_first = [&](const MemoryPoint& point) {
    const MemoryPoint& from = points[first];
    return Stretch::Bytes{point.activation - from.activation, point.temp - from.temp,
                          counts_gradients ? point.weight_grad - from.weight_grad : 0};
  };
  Stretch stretch;
  if (first >= last) return stretch;
  stretch.highest = since_first(points[first + 1]);
  for (std::size_t i = first + 2; i <= last; ++i) {
    const Stretch::Bytes now = since_first(points[i]);
    if (now.total() > stretch.highest.total()) stretch.highest = now;
  }
  stretch.end = since_first(points[last]);
  return stretch;
}

/// What comes before the colon of "down_proj: weight".
std::string operation_of(const MemoryPoint& point) {
  return point.after.substr(0, point.after.find(':'));
}

/// A weight's hooks run when its operation has ended: after the last point named after it.
SegmentWalk::Sections sections_of(const std::vector<MemoryPoint>& points, bool counts_gradients,
                                  bool by_operation) {
  SegmentWalk::Sections all;
  for (std::size_t i = 1, begin = 0; i < points.size(); ++i) {
    const std::string operation = operation_of(points[i]);
    const bool is_end =
        i + 1 == points.size() || (by_operation && operation_of(points[i + 1]) != operation);
    if (!is_end) continue;
    all.push_back({operation, stretch_of(points, begin, i, counts_gradients), begin, i});
    begin = i;
  }
  return all;
}

}  // namespace

SegmentWalk segment_walk(const SegmentMemory& segment, bool counts_gradients, bool by_operation,
                         bool forward_too) {
  SegmentWalk walk;
  walk.forward = sections_of(segment.forward, counts_gradients, forward_too);
  walk.again = sections_of(segment.again, counts_gradients, forward_too);
  if (const std::size_t n = segment.again.size(); n > 1) {
    walk.again_body = {"", stretch_of(segment.again, 0, n - 2, counts_gradients), 0, n - 2};
    walk.again_end = {"", stretch_of(segment.again, n - 2, n - 1, counts_gradients), n - 2, n - 1};
  }
  walk.backward = sections_of(segment.backward, counts_gradients, by_operation);
  return walk;
}

}  // namespace fsdp::paper
