// When a collective runs: once it is the first work of its stream on every rank.
#include "support/cuda_on_host/communicators.h"

namespace cuda_on_host {

std::shared_ptr<Round> round_of(World& world, std::size_t number) {
  std::shared_ptr<Round>& round = world.rounds[number];
  if (round == nullptr) {
    round = std::make_shared<Round>();
    round->parts.resize(world.ranks.size());
    round->streams.resize(world.ranks.size());
    round->arrived.resize(world.ranks.size());
  }
  return round;
}

namespace {

void run_round(World& world, std::size_t number, Round& round) {
  if (round.done) return;
  std::vector<Part> parts;
  for (const auto& part : round.parts) parts.push_back(*part);
  for (std::size_t r = 1; r < parts.size(); ++r) {
    if (agree(parts[0], parts[r])) continue;
    fail("ranks disagree: rank 0 calls {} (op {}, root {}), rank {} calls {} (op {}, root {})",
         text_of(parts[0]), static_cast<int>(parts[0].op), parts[0].root, r, text_of(parts[r]),
         static_cast<int>(parts[r].op), parts[r].root);
  }
  carry_out(parts);
  round.done = true;
  world.rounds.erase(number);
}

}  // namespace

void issue_part(ncclComm& comm, Part part, CUstream_st& stream) {
  const auto world = comm.world;
  const std::size_t number = comm.next_round++;
  const auto round = round_of(*world, number);
  const auto rank = static_cast<std::size_t>(comm.rank);
  const std::string what =
      fmt::format("{} by rank {} on {}", text_of(part), comm.rank, stream.name());
  part.operation = machine().add_operation(what, &stream);
  round->parts[rank] = part;
  round->streams[rank] = &stream;
  const auto all_arrived = [round] {
    for (const bool arrived : round->arrived) {
      if (!arrived) return false;
    }
    return true;
  };
  machine().issue(stream, {what,
                           [&comm, world, number, round] {
                             if (!comm.aborted) run_round(*world, number, *round);
                             ++comm.finished;
                           },
                           [&comm, world, round, rank, all_arrived, part, number] {
                             if (!round->arrived[rank] && !world->aborted) {
                               round->arrived[rank] = true;
                               if (is_elsewhere(*world)) tell_others(comm, part, number);
                             }
                             return comm.aborted || round->done ||
                                    (!world->aborted && all_arrived());
                           },
                           [round] {
                             std::vector<CUstream_st*> blockers;
                             for (std::size_t r = 0; r < round->arrived.size(); ++r) {
                               if (round->arrived[r] || round->streams[r] == nullptr) continue;
                               blockers.push_back(round->streams[r]);
                             }
                             return blockers;
                           }});
  if (is_elsewhere(*world)) run_for_others();
}

}  // namespace cuda_on_host
