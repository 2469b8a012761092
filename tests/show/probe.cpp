// A show program that goes wrong as its argument says.
#include "base/check.h"
#include "base/todo.h"
#include "show/show.h"

#include <string>

int main(int argc, char** argv) {
  using namespace fsdp;
  const std::string how = argc > 1 ? argv[1] : "";
  return show::run(3, [&](show::Show& show) {
    show.line("before");
    if (how == "todo") todo("2.1");
    if (how == "todo of ranks") {
      show::together(show::kRanks, [](ProcessGroup& group) {
        if (group.rank() != 2) group.barrier({}).wait();
        todo("3.2");
      });
    }
    if (how == "caught todo") {
      try {
        todo("3.3");
      } catch (const TodoError&) {
        fail("this follows from it");
      }
    }
    if (how == "error") fail("the shard is too short");
    show.check(how != "wrong", "it is as it must be");
  });
}
