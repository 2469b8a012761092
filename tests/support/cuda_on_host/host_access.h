/// @file
/// Reports host code that touches device memory. Internal.
#pragma once

namespace cuda_on_host {

/// From now on, a fault at an address of device memory ends the process with a sentence that names
/// the allocation. Other faults end it as before.
void watch_host_accesses();

}  // namespace cuda_on_host
