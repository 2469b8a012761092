#include "config/hugging_face/rows.h"

#include "io/hf_folder.h"

namespace fsdp::config::hugging_face {

const foreign::Rows& rows() {
  static const foreign::Rows table = [] {
    using Use = foreign::Row::Use;
    foreign::Rows all;
    for (const io::HfKey& each : io::hf_keys()) {
      foreign::Row row{.use = Use::own, .path = each.name};
      switch (each.use) {
        case io::HfKey::Use::read:
          row.use = Use::set;
          row.key = "model.from";
          break;
        case io::HfKey::Use::fixed:
          row.use = Use::only;
          row.word = each.detail;
          row.why = "use another model";
          break;
        case io::HfKey::Use::no_effect:
          row.use = Use::idle;
          row.why = "it changes nothing of what the model computes";
          break;
        case io::HfKey::Use::refused:
          row.use = Use::refuse;
          row.why = each.detail;
          break;
      }
      all.push_back(row);
    }
    return all;
  }();
  return table;
}

}  // namespace fsdp::config::hugging_face
