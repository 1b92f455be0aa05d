#include "ibverbs/drivers.h"

#include <unistd.h>

#include <cerrno>

#include "ibverbs/devices.h"
#include "ibverbs/driver_registrations.h"
#include "ibverbs/real.h"
#include "ibverbs/registry.h"

using namespace weft::ibverbs;

namespace {

// enum ibv_gid_type_sysfs of rdma-core: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  if (registry::find<Context>(context)) {
    weft::OwnGid found;
    const int error = port == kPort ? find_gid(*context, index, found) : EINVAL;
    if (error == EINVAL) return fail_minus(EINVAL);
    *type = is_roce() && error == 0 ? 1 : 0;
    return 0;
  }
  auto* real =
      reinterpret_cast<decltype(&query_gid_type)>(real_ibverbs().symbol("ibv_query_gid_type"));
  return real != nullptr ? real(context, port, index, type) : fail_minus(EINVAL);
}

}  // namespace

namespace weft::ibverbs {

void* private_function(std::string_view name) {
  if (name == "ibv_query_gid_type") return reinterpret_cast<void*>(&query_gid_type);
  if (name.starts_with("verbs_register_driver_")) return reinterpret_cast<void*>(&register_driver);
  return nullptr;
}

}  // namespace weft::ibverbs

extern "C" {

// rdma-core had this function before 2017. Some programs look for it to see whether verbs are
// usable.
void ibv_register_driver(const char* name, void* init);
void ibv_register_driver(const char* /*name*/, void* /*init*/) {}

}  // extern "C"
