// Device and port queries that contexts reach through their operations.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace weft::ibverbs {

// The return value is 0 or an errno. Both write at most as many bytes as the caller's struct has.
int query_port(ibv_context* handle, std::uint8_t port, ibv_port_attr* out, std::size_t size_bytes);
int query_device_ex(ibv_context* handle, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size_bytes);
int query_device(ibv_context* handle, ibv_device_attr* out);

// The speed that query_port() names by its width and lanes, in units of 100 Mbit/s.   0 or EINVAL
int query_port_speed(std::uint32_t port, std::uint64_t& speed);

}  // namespace weft::ibverbs
