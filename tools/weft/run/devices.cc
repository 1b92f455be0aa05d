// `weft devices`: what RDMA programs see under `weft run`, asked through the same libraries.
#include <dlfcn.h>
#include <fmt/format.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "weft/common/arguments.h"
#include "weft/common/common.h"
#include "weft/run/kernel.h"
#include "weft/run/program.h"

#if __has_include(<infiniband/verbs.h>)
#define WEFT_HAVE_VERBS_HEADER 1
#include <infiniband/verbs.h>
#undef ibv_query_port
#endif

namespace weft::cli {
namespace {

struct DeviceRow {
  std::string name;
  std::string node_type;
  std::string transport;
  std::string guid;
  std::string firmware;
  std::string port_state;
  std::string interface;
  std::vector<std::string> gids;
  bool is_weft = false;
};

#ifdef WEFT_HAVE_VERBS_HEADER

// The functions of one libibverbs.so.1, by name.
class Verbs {
 public:
  explicit Verbs(void* library) : library_(library) {}

  template <class Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

 private:
  void* library_;
};
#define WEFT_VERB(verbs, name) ((verbs).get<decltype(::name)>(#name))

std::string transport_name(ibv_transport_type type) {
  switch (type) {
    case IBV_TRANSPORT_IB: return "InfiniBand or RoCE";
    case IBV_TRANSPORT_IWARP: return "iWARP";
    default: return "other";
  }
}

std::string guid_text(__be64 guid) {
  std::uint8_t octets[8];
  std::memcpy(octets, &guid, sizeof octets);
  return fmt::format("{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}:{:02x}{:02x}", octets[0], octets[1],
                     octets[2], octets[3], octets[4], octets[5], octets[6], octets[7]);
}

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < sizeof gid.raw; i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
  }
  return text;
}

// Its GIDs, and the network interface behind them.
void read_gids(const Verbs& verbs, ibv_context* context, DeviceRow& row) {
  std::vector<ibv_gid_entry> table(256);
  auto* query = WEFT_VERB(verbs, _ibv_query_gid_table);
  if (query == nullptr) return;
  const ssize_t count = query(context, table.data(), table.size(), 0, sizeof table.front());
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = table[static_cast<std::size_t>(i)];
    row.gids.push_back(gid_text(entry.gid));
    char name[IF_NAMESIZE];
    if (row.interface.empty() && if_indextoname(entry.ndev_ifindex, name) != nullptr) {
      row.interface = name;
    }
  }
}

void read_open_device(const Verbs& verbs, ibv_device* device, DeviceRow& row) {
  ibv_context* context = WEFT_VERB(verbs, ibv_open_device)(device);
  if (context == nullptr) {
    row.port_state = fmt::format("cannot be opened: {}", std::strerror(errno));
    return;
  }
  ibv_device_attr attr{};
  if (WEFT_VERB(verbs, ibv_query_device)(context, &attr) == 0) row.firmware = attr.fw_ver;
  ibv_port_attr port{};
  const verbs_context* extended = verbs_get_ctx(context);
  if (extended != nullptr && extended->query_port != nullptr &&
      extended->query_port(context, 1, &port, sizeof port) == 0) {
    row.port_state = WEFT_VERB(verbs, ibv_port_state_str)(port.state);
  }
  read_gids(verbs, context, row);
  WEFT_VERB(verbs, ibv_close_device)(context);
}

Outcome<std::vector<DeviceRow>> list_devices(const std::string& folder) {
  const std::string path = folder + "/libibverbs.so.1";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return failure(fmt::format("{}: {}", path, dlerror()));
  const Verbs verbs(library);
  int count = 0;
  ibv_device** devices = WEFT_VERB(verbs, ibv_get_device_list)(&count);
  if (devices == nullptr) {
    return failure(fmt::format("ibv_get_device_list: {}", std::strerror(errno)));
  }
  std::vector<DeviceRow> rows;
  for (int i = 0; i < count; ++i) {
    DeviceRow row;
    row.name = devices[i]->name;
    row.is_weft = row.name.starts_with("weft");
    row.node_type = WEFT_VERB(verbs, ibv_node_type_str)(devices[i]->node_type);
    row.transport = transport_name(devices[i]->transport_type);
    row.guid = guid_text(WEFT_VERB(verbs, ibv_get_device_guid)(devices[i]));
    read_open_device(verbs, devices[i], row);
    rows.push_back(std::move(row));
  }
  WEFT_VERB(verbs, ibv_free_device_list)(devices);
  return rows;
}

#else

Outcome<std::vector<DeviceRow>> list_devices(const std::string&) {
  return failure("this weft was built without rdma-core's headers, so it has no verbs libraries");
}

#endif

std::string cm_text() {
  const char* wish = std::getenv("WEFT_REAL_CM");
  const bool real = is_real_cm(look_at_kernel_rdma(), wish != nullptr ? wish : "auto");
  return real ? "the machine's own" : "weft";
}

void print_table(const std::vector<DeviceRow>& rows, const std::string& folder) {
  fmt::print("libraries  {}\nrdma_cm    {}\n\n", folder, cm_text());
  fmt::print("{:<10} {:<12} {:<28} {:<20} {:<20} {:<10} {}\n", "device", "interface", "type",
             "transport", "GUID", "port 1", "firmware");
  for (const DeviceRow& row : rows) {
    fmt::print("{:<10} {:<12} {:<28} {:<20} {:<20} {:<10} {}\n", row.name, row.interface,
               row.node_type, row.transport, row.guid, row.port_state, row.firmware);
  }
}

void print_json(const std::vector<DeviceRow>& rows, const std::string& folder) {
  auto devices = nlohmann::ordered_json::array();
  for (const DeviceRow& row : rows) {
    devices.push_back({{"name", row.name},
                       {"weft", row.is_weft},
                       {"node_type", row.node_type},
                       {"transport", row.transport},
                       {"guid", row.guid},
                       {"firmware", row.firmware},
                       {"port_state", row.port_state},
                       {"interface", row.interface},
                       {"gid", row.gids.empty() ? "" : row.gids.front()},
                       {"gids", row.gids}});
  }
  const nlohmann::ordered_json document{
      {"libraries", folder}, {"rdma_cm", cm_text()}, {"devices", devices}};
  fmt::print("{}\n", document.dump(2));
}

Outcome<int> show(bool json) {
  const Outcome<std::string> folder = find_dropin_folder();
  if (!folder) return tl::unexpected(folder.error());
  const auto rows = list_devices(*folder);
  if (!rows) return tl::unexpected(rows.error());
  json ? print_json(*rows, *folder) : print_table(*rows, *folder);
  return kExitOk;
}

}  // namespace

void add_devices(Arguments& app) {
  auto json = std::make_shared<bool>(false);
  Arguments* command = app.add_subcommand("devices", "List the devices that programs will see");
  command->add_flag("--json", *json, "As JSON on stdout");
  when_chosen(*command, [json] { return show(*json); });
}

}  // namespace weft::cli
