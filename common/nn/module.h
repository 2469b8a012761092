/// @file
/// @ingroup nn
/// Module: a tree of parameters with a forward function, and hooks around it.
#pragma once

#include "autograd/node.h"
#include "autograd/variable.h"
#include "device/context.h"
#include "nn/call_state.h"
#include "nn/init_observer.h"
#include "tensor/init.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::nn {

class Attention;
class Module;
struct TransformerConfig;

using ModuleHook = std::function<void(Module&)>;

/// A part of a module's call, as a function of its input.
using Call = std::function<Variable(const Variable& x)>;
/// What runs in place of that part: it gets the part as `call`, and returns what it returned. It
/// may call it later too, as long as the module lives.
using CallWrapper = std::function<Variable(Module& module, const Variable& x, const Call& call)>;

/// Notified of every module call on this thread while its CallObserverScope lives. Instruments
/// (memory snapshots, the timeline) attach here. Removing them changes nothing.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void on_state(Module& module, CallState state) = 0;
};
class CallObserverScope {
 public:
  explicit CallObserverScope(CallObserver& observer);
  ~CallObserverScope();
  CallObserverScope(const CallObserverScope&) = delete;
  CallObserverScope& operator=(const CallObserverScope&) = delete;

 private:
  CallObserver* previous_;
};

struct NamedParameter {
  std::string path;  ///< "model.layers.0.self_attn.q_proj.weight"
  Variable variable;
  Module* module;  ///< the module that registered it
};

/// A tensor of the model that is not trained (RoPE tables). Not saved: it can be computed.
struct Buffer {
  std::string name;
  Tensor tensor;
  bool is_initialized = false;
};

/// A tree of parameters, buffers and children with a forward function.
///
/// Names may contain dots, and a child's name may be empty. A path joins the non-empty names. So
/// paths can equal those of another system's checkpoints, whatever the tree looks like here.
/// Modules are neither copied nor moved.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Runs forward() with everything around it:
  ///
  ///     before_pre_forward   forward pre-hooks   after_pre_forward
  ///     trace forward_begin   forward()   trace forward_end      allocations belong to this module
  ///     before_post_forward   forward hooks      after_post_forward
  ///
  /// and, when backward runs the nodes that forward() recorded,
  ///
  ///     before_pre_backward   backward pre-hooks  after_pre_backward
  ///     trace backward_begin   its nodes   trace backward_end
  ///     before_post_backward  backward hooks      after_post_backward
  ///
  /// The memory tracker counts the module as active from the first to the last line of each. The
  /// module must outlive the tape. Two calls in one forward are two backward frames. After an
  /// exception nothing stays open.
  ///
  /// Two slots hold what is put around a part of this: around forward() alone, inside the hooks, or
  /// around everything, outside of them.
  Variable operator()(const Variable& x);

  // ------------------------------------------------------------------------------- structure
  /// The full path from the root of the tree ("" for the root itself).
  const std::string& path() const { return path_; }
  /// The last part of the path, as registered.
  const std::string& name() const { return name_; }
  const std::vector<std::shared_ptr<Module>>& children() const { return children_; }
  Module* parent() const { return parent_; }
  /// This module and all below, parents first, in registration order.
  std::vector<Module*> modules();
  /// All parameters of the tree, in registration order, depth first. A tied parameter appears once,
  /// under its first path.
  std::vector<NamedParameter> named_parameters();
  /// The same as pairs (path, variable).
  std::vector<std::pair<std::string, Variable>> variables();
  /// Every (path, variable) registration, tied parameters once per path.
  std::vector<NamedParameter> named_parameters_with_ties();
  /// The parameters registered in this module itself.
  const std::vector<std::pair<std::string, Variable>>& own_parameters() const {
    return parameters_;
  }
  std::vector<Buffer>& own_buffers() { return buffers_; }
  std::int64_t parameter_count();
  Module* find(std::string_view path);  ///< null if there is none

  /// Replaces all parameters and buffers of the tree by copies of another floating type. Tests do
  /// so, to check in float64.
  void convert(DType dtype);

  /// Fills this module's own buffers. If they are not allocated, it first allocates them on the
  /// current device. Call it when a meta model is allocated.
  virtual void initialize_buffers() {}

  // ----------------------------------------------------------------- what a model overrides
  /// The parts that default_wrap_policy() makes units of: here, the children with parameters. What
  /// is outside of them belongs to the root.
  virtual std::vector<Module*> default_units();
  /// Its attention layers, if it can continue a sequence of which they keep keys and values
  /// (key_value_cache.h). None: it cannot.
  virtual std::vector<Attention*> continuable_attention() { return {}; }
  /// What a config.json of this model says. Null: it is no Llama.
  virtual const TransformerConfig* llama_config() const { return nullptr; }

  // ----------------------------------------------------------------------------------- hooks
  // Named and ordered as in PyTorch. All return a handle for remove_hook().
  int register_forward_pre_hook(ModuleHook hook);
  int register_forward_hook(ModuleHook hook);
  /// Before the first node of this module's backward runs.
  int register_full_backward_pre_hook(ModuleHook hook);
  /// Once, after the module's last backward node and all its accumulations, even if no input of
  /// the module needs a gradient.
  int register_full_backward_hook(ModuleHook hook);
  void remove_hook(int handle);
  /// Runs in place of forward(); null empties the slot. @throws Error if the slot is taken.
  void wrap_forward(CallWrapper wrapper);
  /// Runs in place of the whole call, hooks included; likewise.
  void wrap_call(CallWrapper wrapper);

  /// Makes this module a unit: the trace names its forward and backward after it.
  void set_unit_name(std::string name) { unit_name_ = std::move(name); }
  const std::string& unit_name() const { return unit_name_; }
  /// What fully_shard() has made of this module.
  enum class Sharding {
    none,
    unit_to_be,  ///< it will be a unit of the model around it
    sharded,     ///< it is in a sharded model
  };
  void set_sharding(Sharding sharding) { sharding_ = sharding; }
  Sharding sharding() const { return sharding_; }

 protected:
  virtual Variable forward(const Variable& x) = 0;

  /// A new parameter on the current device, counted as UNSHARDED_PARAM. It is initialized by `spec`
  /// from the current Context's generator, or by this thread's InitObserver.
  Variable register_parameter(std::string name, Shape shape, const InitSpec& spec,
                              DType dtype = DType::float32);
  /// A parameter that already belongs to another module (tied weights).
  void register_shared_parameter(std::string name, Variable variable);
  template <class M>
  std::shared_ptr<M> register_child(std::string name, std::shared_ptr<M> child) {
    adopt(std::move(name), child);
    return child;
  }
  /// Describes a buffer on the current device; initialize_buffers() must fill it.
  void register_buffer(std::string name, Shape shape);
  /// @throws Error if the buffer is not initialized. Names it and initialize_buffers().
  const Tensor& buffer(std::string_view name) const;

 private:
  struct Hook {
    int handle;
    ModuleHook call;
  };
  void adopt(std::string name, std::shared_ptr<Module> child);
  void set_path(const std::string& parent_path);
  int add_hook(std::vector<Hook>& hooks, ModuleHook hook);
  Variable call(const Variable& x);
  Variable wrapped_forward(const Variable& x);
  std::shared_ptr<CallFrame> make_frame();
  void call_hooks(CallState before, const std::vector<Hook>& hooks, CallState after);
  void record(EventKind kind);

  std::string name_;
  std::string path_;
  std::string unit_name_;
  Sharding sharding_ = Sharding::none;
  Module* parent_ = nullptr;
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<Buffer> buffers_;
  std::vector<std::shared_ptr<Module>> children_;
  std::vector<Hook> forward_pre_hooks_;
  std::vector<Hook> forward_hooks_;
  std::vector<Hook> backward_pre_hooks_;
  std::vector<Hook> backward_hooks_;
  CallWrapper around_forward_;
  CallWrapper around_call_;
  std::shared_ptr<const Owner> activation_owner_ = std::make_shared<const Owner>();  // {"", path}
  int next_handle_ = 0;
};

}  // namespace fsdp::nn
