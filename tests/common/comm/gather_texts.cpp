#include "comm/gather_texts.h"

#include "worlds.h"

namespace fsdp::comm_test {
namespace {

/// Of every length modulo four, and of none.
std::string text_of(int rank) {
  std::string text;
  for (int i = 0; i < rank * 1001; ++i) text += static_cast<char>('a' + (rank + i) % 26);
  return text;
}

}  // namespace

TEST_CASE("the texts of all ranks come to rank 0, whatever their lengths", "[world]") {
  in_every_world([](const World&, ProcessGroup& group) {
    const Label label{"text", Phase::none};
    for (const int shift : {0, 1}) {  // rank 0's is empty at first, then the last rank's
      const int rank = (group.rank() + shift) % group.size();
      const std::vector<std::string> texts = gather_texts(group, text_of(rank), label);
      const int expected = group.rank() == 0 ? group.size() : 0;
      expect(std::ssize(texts) == expected, "{} texts instead of {}", texts.size(), expected);
      for (int from = 0; from < expected; ++from) {
        expect(texts[static_cast<std::size_t>(from)] == text_of((from + shift) % group.size()),
               "rank {}'s text is another", from);
      }
    }
  });
}

}  // namespace fsdp::comm_test
