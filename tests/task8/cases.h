/// @file
/// What the cases of task 8 assert. Public and hidden cases call the same; only numbers differ.
#pragma once

#include "graded/run.h"

namespace fsdp::graded {

void judge_mesh(const Setup& setup);
/// 8.2, and 8.3: single calls of a ReplicaReduction. All ranks are each other's replicas.
void judge_start(const Setup& setup);
void judge_finish(const Setup& setup);
void judge_clear(const Setup& setup);
/// 8.3, whole models over a mesh.
void judge_mesh_training(const Setup& setup);
void judge_mesh_memory(const Setup& setup);

void judge_checkpoint_forward(const Setup& setup);
void judge_checkpoint_backward(const Setup& setup);
/// 8.6: the events of a toy whose units are checkpointed from around.
void judge_around(const Setup& setup);
/// 8.5 (checkpoint: "inside") and 8.6 ("around"), whole models.
void judge_checkpoint_training(const Setup& setup);
void judge_checkpoint_memory(const Setup& setup);

}  // namespace fsdp::graded
