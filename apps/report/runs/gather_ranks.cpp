#include "report/runs/gather_ranks.h"

#include "comm/gather_texts.h"
#include "report/record_text.h"

namespace fsdp::report {

void gather_ranks(RunRecord& record, ProcessGroup& group) {
  const RankRecord& own = record.ranks.at(static_cast<std::size_t>(group.rank()));
  const std::string text = group.rank() == 0 ? "" : to_text(own);  // rank 0 has its own already
  const std::vector<std::string> texts = gather_texts(group, text, {"picture", Phase::none});
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    record.ranks.at(rank) = from_text(texts[rank]);
}

}  // namespace fsdp::report
