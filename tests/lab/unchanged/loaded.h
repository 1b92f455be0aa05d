// Shared by the program and the library that it loads.
#pragma once

#include <rdma/rdma_cma.h>
#include <stdatomic.h>

extern atomic_int loads;  // the constructor runs
extern struct rdma_event_channel* events;
