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

Stretch whole_stretch(const std::vector<MemoryPoint>& points, bool counts_gradients) {
  return points.empty() ? Stretch{} : stretch_of(points, 0, points.size() - 1, counts_gradients);
}

/// What comes before the colon of "down_proj: weight".
std::string operation_of(const MemoryPoint& point) {
  return point.after.substr(0, point.after.find(':'));
}

}  // namespace

SegmentWalk segment_walk(const SegmentMemory& segment, bool counts_gradients, bool by_operation) {
  SegmentWalk walk;
  walk.forward = whole_stretch(segment.forward, counts_gradients);
  walk.again = whole_stretch(segment.again, counts_gradients);
  if (const std::size_t n = segment.again.size(); n > 1) {
    walk.again_body = stretch_of(segment.again, 0, n - 2, counts_gradients);
    walk.again_end = stretch_of(segment.again, n - 2, n - 1, counts_gradients);
  }
  // A weight's hooks run when its operation has ended: after the last point named after it.
  const std::vector<MemoryPoint>& points = segment.backward;
  for (std::size_t i = 1, begin = 0; i < points.size(); ++i) {
    const std::string operation = operation_of(points[i]);
    const bool is_end =
        i + 1 == points.size() || (by_operation && operation_of(points[i + 1]) != operation);
    if (!is_end) continue;
    walk.backward.push_back({operation, stretch_of(points, begin, i, counts_gradients)});
    begin = i;
  }
  return walk;
}

}  // namespace fsdp::paper
