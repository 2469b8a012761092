// What happens around forward and backward: hooks, states, trace, owners, active modules.
#include "nn/module.h"

#include "autograd/backward.h"
#include "toy_modules.h"

namespace fsdp::nn {

TEST_CASE("all four hooks of nested modules, in order") {
  Lines log;
  Toy root;
  auto a = root.child("a", std::make_shared<Gain>());
  auto b = root.child("b", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) { return (*b)((*a)(x)); });
  log_hooks(root, log, "root");
  log_hooks(*a, log, "a");
  log_hooks(*b, log, "b");
  for (const auto& [name, gain] : {std::pair{"a", a}, std::pair{"b", b}}) {
    gain->weight().register_post_accumulate_grad_hook(
        [&log, name = std::string(name)](const Variable&) {
          log.push_back("accumulated " + name);
        });
  }

  const Variable loss = sum(root(input()));
  CHECK(log == Lines{"pre forward root", "pre forward a", "forward a", "pre forward b", "forward b",
                     "forward root"});
  log.clear();
  loss.backward();
  // The input needs no gradient: the full-backward hooks come all the same.
  CHECK(log == Lines{"pre backward root", "pre backward b", "accumulated b", "backward b",
                     "pre backward a", "accumulated a", "backward a", "backward root"});
}

TEST_CASE("a module called twice has two frames, its tied weight is complete once, at the last") {
  Lines log;
  Toy root;
  auto shared = root.child("shared", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) { return (*shared)((*shared)(x)); });
  log_hooks(*shared, log, "shared");
  shared->weight().register_post_accumulate_grad_hook(
      [&](const Variable&) { log.emplace_back("accumulated"); });
  sum(root(input({3, 5}))).backward();
  CHECK(log == Lines{"pre forward shared", "forward shared", "pre forward shared", "forward shared",
                     "pre backward shared", "backward shared", "pre backward shared", "accumulated",
                     "backward shared"});
  CHECK(shared->weight().grad().to_vector<float>() == std::vector<float>{6, 10});
}

TEST_CASE("a module whose output was not used has no backward") {
  Lines log;
  Toy root;
  auto used = root.child("used", std::make_shared<Gain>());
  auto unused = root.child("unused", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) {
    const Variable ignored = (*unused)(x);
    return (*used)(x);
  });
  log_hooks(*unused, log, "unused");
  sum(root(input())).backward();
  CHECK(log == Lines{"pre forward unused", "forward unused"});
}

TEST_CASE("a frozen module between trainable ones still has its backward hooks") {
  Lines log;
  Toy root;
  auto first = root.child("first", std::make_shared<Gain>());
  auto frozen = root.child("frozen", std::make_shared<Gain>());
  frozen->weight().set_requires_grad(false);
  root.set_forward([&](const Variable& x) { return (*frozen)((*first)(x)); });
  log_hooks(*frozen, log, "frozen");
  sum(root(input())).backward();
  CHECK(log.back() == "backward frozen");
  CHECK_FALSE(frozen->weight().grad().is_defined());
}

TEST_CASE("without a tape there are forward hooks only") {
  Lines log;
  Gain gain;
  log_hooks(gain, log, "gain");
  const NoGradScope no_grad;
  CHECK(gain(input()).is_leaf());
  CHECK(log == Lines{"pre forward gain", "forward gain"});
}

TEST_CASE("hooks can be removed, also by themselves while they run") {
  int calls = 0;
  Gain gain;
  int self = -1;
  self = gain.register_forward_pre_hook([&](Module& module) {
    ++calls;
    module.remove_hook(self);
  });
  const int other = gain.register_forward_hook([&](Module&) { calls += 10; });
  CHECK(self != other);
  gain(input());
  gain(input());
  gain.remove_hook(other);
  gain(input());
  CHECK(calls == 21);
}

TEST_CASE("an observer sees eight states, the trace four moments, around the hooks") {
  Context context;
  const ContextScope scope(context);
  context.trace().set_recording(true);
  Lines log;
  struct Watcher : CallObserver {
    explicit Watcher(Lines& lines) : log(lines) {}
    void on_state(Module& module, CallState state) override {
      log.push_back(module.path() + " " + std::string(name_of(state)));
    }
    Lines& log;
  } watcher(log);

  Toy root;
  auto unit = root.child("unit", std::make_shared<Gain>());
  unit->set_unit_name("u0");
  root.set_forward([&](const Variable& x) { return (*unit)(x); });
  const auto traced = [&] { return std::to_string(context.trace().events().size()); };
  unit->register_forward_pre_hook([&](Module&) { log.push_back("hook, trace " + traced()); });
  unit->register_forward_hook([&](Module&) { log.push_back("hook, trace " + traced()); });
  unit->register_full_backward_pre_hook([&](Module&) { log.push_back("hook, trace " + traced()); });
  unit->register_full_backward_hook([&](Module&) { log.push_back("hook, trace " + traced()); });
  {
    const CallObserverScope watching(watcher);
    CHECK_THROWS_AS(CallObserverScope(watcher), Error);  // it cannot be replaced
    sum((*unit)(input())).backward();
  }
  CHECK(log == Lines{"unit BEF_PRE_FW", "hook, trace 0", "unit AFT_PRE_FW", "unit BEF_POST_FW",
                     "hook, trace 2", "unit AFT_POST_FW", "unit BEF_PRE_BW", "hook, trace 2",
                     "unit AFT_PRE_BW", "unit BEF_POST_BW", "hook, trace 4", "unit AFT_POST_BW"});
  CHECK(context.trace().lines() ==
        Lines{"forward_begin u0", "forward_end u0", "backward_begin u0", "backward_end u0"});
  log.clear();
  sum(root(input())).backward();  // removed: nothing is said any more
  CHECK(log.size() == 4);
}

TEST_CASE("activations and temporaries belong to the module that makes them") {
  Context context;
  const ContextScope scope(context);
  context.tracker().set_logging(true);
  Toy root;
  auto a = root.child("block.a", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) { return scale((*a)(scale(x, 2)), 3); });
  const Variable x = input({1, 2}, true);
  const std::size_t begin = context.tracker().log().size();
  const Variable y = root(x);
  Lines owners;
  for (std::size_t i = begin; i < context.tracker().log().size(); ++i) {
    const auto& entry = context.tracker().log()[i];
    if (entry.what != MemoryTracker::LogEntry::What::alloc) continue;
    CHECK(entry.kind == MemoryKind::activation);
    owners.push_back(entry.owner ? entry.owner->name : "nobody");
  }
  CHECK(owners == Lines{"", "block.a", ""});
  CHECK(AllocationScope::owner() == nullptr);

  const std::size_t backward_begin = context.tracker().log().size();
  sum(y).backward();
  bool has_temporary_of_a = false;
  for (std::size_t i = backward_begin; i < context.tracker().log().size(); ++i) {
    const auto& entry = context.tracker().log()[i];
    has_temporary_of_a |= entry.what == MemoryTracker::LogEntry::What::alloc &&
                          entry.kind == MemoryKind::temp && entry.owner &&
                          entry.owner->name == "block.a";
  }
  CHECK(has_temporary_of_a);
}

TEST_CASE("module peaks cover a module's own forward and backward, hooks included") {
  Context context;
  const ContextScope scope(context);
  Toy root;
  auto a = root.child("a", std::make_shared<Gain>());
  auto b = root.child("b", std::make_shared<Gain>());
  root.set_forward([&](const Variable& x) { return (*b)((*a)(x)); });
  a->register_full_backward_hook([](Module&) { Tensor::empty({1000}); });
  context.pool();  // its scratch is counted once, from the first use on
  const std::int64_t scratch = context.tracker().current().total();
  sum(root(input())).backward();
  const auto peak = [&](const char* path) {
    return context.tracker().module_peaks().at(path) - scratch;
  };
  CHECK(peak("a") > 4000);
  CHECK(peak("b") < 4000);
  const std::int64_t before = peak("b");
  const Tensor later = Tensor::empty({5000});  // nobody is active any more
  CHECK(peak("a") < 5000 * 4);
  CHECK(peak("b") == before);
}

TEST_CASE("an exception leaves nothing open") {
  Context context;
  const ContextScope scope(context);
  Toy root;
  auto a = root.child("a", std::make_shared<Gain>());
  bool forward_fails = false;
  root.set_forward([&](const Variable& x) {
    const Variable y = (*a)(x);
    if (forward_fails) fail("forward fails");
    return y;
  });
  const auto nothing_is_open = [&] {
    CHECK(CallFrameScope::current() == nullptr);
    CHECK(AllocationScope::owner() == nullptr);
    CHECK_FALSE(in_backward());
    CHECK(grad_enabled());
    const std::int64_t peak = context.tracker().module_peaks().at("a");
    const Tensor big = Tensor::empty({peak});
    CHECK(context.tracker().module_peaks().at("a") == peak);
    CHECK(context.tracker().module_peaks().at("") < 4 * peak);
  };
  SECTION("in forward") {
    forward_fails = true;
    CHECK_THROWS_AS(root(input()), Error);
    nothing_is_open();
  }
  SECTION("in a pre-forward hook") {
    a->register_forward_pre_hook([](Module&) { fail("hook fails"); });
    CHECK_THROWS_AS(root(input()), Error);
    nothing_is_open();
  }
  SECTION("in a backward hook") {
    a->register_full_backward_pre_hook([](Module&) { fail("hook fails"); });
    const Variable loss = sum(root(input()));
    CHECK_THROWS_AS(loss.backward(), Error);
    nothing_is_open();
  }
}

}  // namespace fsdp::nn
