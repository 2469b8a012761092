#include "kinds.h"

#include "support/catch.h"

namespace fsdp::faults {
namespace {

/// How one run ended.
struct Ending {
  std::atomic<int> ended = 0;
  Promised thrown = Promised::nothing;
  std::string message;
  std::vector<std::string> others;  // what ranks but the culprit saw, if it was an Aborted
};

void end_rank(const Player& player, Ending& ending) {
  ++ending.ended;
  if (!player.is_culprit()) player.scene.others_ended.count_down();
}

void run_rank(const Kind& kind, const Player& player, Ending& ending) {
  try {
    kind.body(player);
  } catch (const Aborted& error) {
    if (!player.is_culprit())
      ending.others[static_cast<std::size_t>(player.group.rank())] = error.what();
    end_rank(player, ending);
    throw;
  } catch (...) {
    end_rank(player, ending);
    throw;
  }
  end_rank(player, ending);
}

void run(const Kind& kind, int world_size, Ending& ending) {
  Scene scene(world_size);
  ending.others.resize(static_cast<std::size_t>(world_size));
  RankOptions options{.world_size = world_size};
  options.patience = kind.patience;
  try {
    run_ranks(options, [&](ProcessGroup& group) { run_rank(kind, {group, scene}, ending); });
  } catch (const Aborted& error) {
    ending.thrown = Promised::aborted;
    ending.message = error.what();
  } catch (const InputError& error) {
    ending.thrown = Promised::input_error;
    ending.message = error.what();
  } catch (const Error& error) {
    ending.thrown = Promised::error;
    ending.message = error.what();
  } catch (const std::runtime_error& error) {
    ending.thrown = Promised::runtime_error;
    ending.message = error.what();
  } catch (int) {
    ending.thrown = Promised::number;
  }
}

}  // namespace

void check_kinds(const std::vector<Kind>& kinds) {
  for (const int world_size : {2, 3, 4, 8}) {
    for (const Kind& kind : kinds) {
      Ending ending;
      run(kind, world_size, ending);
      INFO(kind.name << ", " << world_size << " ranks; the message:\n" << ending.message);
      CHECK(ending.ended == world_size);
      CHECK(ending.thrown == kind.promised);
      for (const std::string& part : kind.says) CHECK_THAT(ending.message, contains(part));
      if (kind.promised == Promised::nothing || kind.others_may_finish) continue;
      for (int rank = 0; rank < world_size; ++rank) {
        if (rank == kCulprit) continue;
        INFO("rank " << rank);
        const std::string& seen = ending.others[static_cast<std::size_t>(rank)];
        CHECK_THAT(seen, Catch::Matchers::StartsWith("Aborted: "));
        // Who waits where is in it, and what the culprit said.
        CHECK_THAT(seen, contains("\nrank  seq  operation"));
        if (kind.promised != Promised::number)
          for (const std::string& part : kind.says) CHECK_THAT(seen, contains(part));
      }
    }
  }
}

}  // namespace fsdp::faults
