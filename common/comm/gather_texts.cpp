#include "comm/gather_texts.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

namespace fsdp {

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& own,
                                      const Label& label) {
  const Tensor lengths = Tensor::empty({group.size()}, DType::int64);
  group.all_gather(lengths, Tensor::from<std::int64_t>({std::ssize(own)}, {1}), label).wait();
  const bool is_first = group.rank() == 0;
  std::vector<std::string> texts;
  if (is_first) texts.push_back(own);
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::vector<std::int64_t> nbytes = lengths.to_vector<std::int64_t>();
  for (int rank = 1; rank < group.size(); ++rank) {
    const std::int64_t length = nbytes[static_cast<std::size_t>(rank)];
    std::vector<std::int32_t> content(static_cast<std::size_t>((length + kWord - 1) / kWord));
    if (rank == group.rank() && length > 0) std::memcpy(content.data(), own.data(), own.size());
    const Tensor words = Tensor::from(content, {std::ssize(content)});
    group.broadcast(words, rank, label).wait();
    if (!is_first) continue;
    content = words.to_vector<std::int32_t>();
    std::string text(static_cast<std::size_t>(length), '\0');
    if (length > 0) std::memcpy(text.data(), content.data(), text.size());
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace fsdp
