// The files of /sys, and those of /dev, that belong to Weft's devices.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::ibverbs {

struct SysfsFile {
  std::string path;  // below /sys/class, or absolute
  std::string text;  // without the newline at the end; of a link, where it leads
  bool is_link = false;
};

// All of them, made from device_table().
[[nodiscard]] std::vector<SysfsFile> sysfs_files();

// The text of the file at `path` below /sys/class. Nothing: there is none.
[[nodiscard]] std::optional<std::string> sysfs_text(std::string_view path);

}  // namespace weft::ibverbs

extern "C" {

// A folder that holds them at TREE/sys/class/..., and for each RoCE device a character device at
// TREE/dev/infiniband (UCX asks whether there is one and reads nothing of it), for programs that
// open them themselves; the real devices of /sys/class/infiniband are there as links. Made on the
// first call. Null: it cannot be written; the reason is on stderr. The string lives forever.
//
// It lies in XDG_RUNTIME_DIR or /tmp, belongs to the user, is named after its contents, and is
// shared by all processes that need the same one.
const char* weft_ibv_sysfs_tree();

}  // extern "C"
