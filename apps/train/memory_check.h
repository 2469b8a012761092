/// @file
/// @ingroup train
/// Refuses a training that cannot fit, before anything is allocated: the system would let it begin,
/// and kill it later without a word.
#pragma once

#include "config/config.h"
#include "program/memory.h"
#include "train/bound.h"

#include <cstdint>

namespace fsdp::train {

/// What the ranks of a training or evaluation may take together: memory of this machine, or of its
/// cards.
program::FreeMemory free_memory(const config::TrainConfig& config);

/// What the ranks of this machine need together, by the formula of the writeup (train/bound.h), and
/// the data. A step of more than 16 micro-steps is taken for one of 16, and what is beyond 10^15
/// bytes is only estimated: the result is a lower bound then. Never overflows.
std::int64_t needed_bytes(const config::TrainConfig& config, Purpose purpose = Purpose::training);

/// @throws InputError if the work needs more than there is, with both numbers and the key that
/// would save most, unless parallel.check_memory is false.
/// @param there    memory of this machine, or of its cards
/// @param of_host  with cards, the memory that must hold the data and what is offloaded
void check_memory(const config::TrainConfig& config, const program::FreeMemory& there,
                  Purpose purpose = Purpose::training,
                  const program::FreeMemory& of_host = program::free_memory());

}  // namespace fsdp::train
