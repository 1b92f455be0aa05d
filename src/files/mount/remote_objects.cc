// Extended attributes and further names of a served file.
#include "files/mount/remote.h"

#include <cerrno>
#include <thread>

namespace weft::mount {

namespace {

constexpr std::uint32_t kXattrPageBytes = 64U << 10U;

}  // namespace

int Remote::xattrs(const std::string& path, files::Xattrs& out) {
  if (auto ok = ready(); !ok) return local_error(ok.error());
  if (!client_->has_objects()) return EOPNOTSUPP;
  const std::string name = name_of(path);
  files::XattrsReply reply;
  for (int tries = 0;;) {
    const auto answer = call_again([&] {
      const std::uint64_t address = files::address_of(memory_.data());
      return files::XattrsRequest{0, {address, memory_.rkey(), kXattrPageBytes}, {name}};
    });
    const int error = take_reply(answer, reply);
    if (error == 0) break;
    // The server is short of memory just now.
    if (error != EAGAIN || ++tries == kListTries) return error;
    std::this_thread::sleep_for(kListPause);
  }
  if (reply.bytes > kXattrPageBytes) return EIO;
  // The server can write into its part of our memory at any time.
  const std::vector<std::uint8_t> page(memory_.data(), memory_.data() + reply.bytes);
  auto found = files::decode_xattrs(page);
  if (!found) return EIO;
  out = std::move(*found);
  return 0;
}

int Remote::link(const std::string& from, const std::string& to) {
  if (auto ok = ready(); !ok) return local_error(ok.error());
  if (!client_->has_objects()) return EPERM;
  const std::string old_name = name_of(from);
  const std::string new_name = name_of(to);
  return change(to, files::LinkRequest{old_name, {new_name}}, EEXIST);
}

int Remote::set_xattr(const std::string& path, const std::string& name,
                      const std::span<const std::uint8_t>* value) {
  if (auto ok = ready(); !ok) return local_error(ok.error());
  if (!client_->has_objects()) return EOPNOTSUPP;
  const std::string file = name_of(path);
  files::SetXattrRequest request;
  request.removes = value == nullptr ? 1 : 0;
  request.name = name;
  if (value != nullptr) request.value = *value;
  request.path = {file};
  files::NoReply reply;
  const int error = ask(request, reply);
  return error == ENAMETOOLONG && value != nullptr ? E2BIG : error;
}

}  // namespace weft::mount
