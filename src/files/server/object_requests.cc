#include "files/server/object_requests.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "files/protocol/file_attributes.h"
#include "files/server/kept_files.h"
#include "files/server/leases.h"

namespace weft::files {

int ObjectRequests::find(std::uint64_t handle, const PathName& path, bool changes, Object& out) {
  if (handle == 0) return shared_.tree.find(path, changes, out.opened);
  out.file = files_.find(handle);
  return out.file == nullptr || (changes && !out.file->writable()) ? EBADF : 0;
}

int ObjectRequests::lease(const LeaseRequest& request, LeaseReply& reply) {
  const auto file = files_.find(request.handle);
  if (file == nullptr || file->writable()) return EBADF;
  // Somebody may have written while the first was away, and another would not say so.
  if (file->leased && !Leases::has(*file)) return ESTALE;
  const int taken = file->leased ? 0 : shared_.leases->take(file);
  if (taken != 0) return taken;
  file->leased = true;
  int error = 0;
  reply.state = state_of(file->get(), &error);
  return error;
}

int ObjectRequests::link(const LinkRequest& request, NoReply& /*reply*/) {
  return shared_.tree.link(PathName{request.from, request.path.links}, request.path);
}

int ObjectRequests::own(const OwnRequest& request, NoReply& /*reply*/) {
  if (!shared_.options.owners) return EPERM;
  Object object;
  if (const int error = find(request.handle, request.path, true, object); error != 0) return error;
  return fchownat(object.get(), "", request.uid, request.gid, AT_EMPTY_PATH) == 0 ? 0 : errno;
}

int ObjectRequests::set_xattr(const SetXattrRequest& request, NoReply& /*reply*/) {
  const bool for_all = is_for_users(request.name) || is_acl(request.name);
  const bool may = for_all || (is_carried(request.name) && shared_.options.owners);
  if (!may) return EPERM;
  Object object;
  if (const int error = find(request.handle, request.path, true, object); error != 0) return error;
  return files::set_xattr(object.get(), std::string(request.name),
                          request.removes != 0 ? nullptr : &request.value);
}

int ObjectRequests::keep(const KeepRequest& /*request*/, KeepReply& reply) {
  if (!key_) key_ = shared_.kept->add(files_);
  if (!key_) return EIO;
  reply.key = *key_;
  return 0;
}

int ObjectRequests::reopen(const ReopenRequest& request, ReopenRequest::Reply& reply) {
  if (!files_.have_room(laters_.size())) return EMFILE;
  const auto file = shared_.kept->find(request.key, request.handle);
  if (file == nullptr || file->draft != nullptr) return ESTALE;
  int error = 0;
  reply.state = state_of(file->get(), &error);
  if (error == 0) reply.handle = files_.add(file);
  return error;
}

int ObjectRequests::xattrs(const XattrsRequest& request, XattrsReply& reply,
                           std::span<std::uint8_t> room) {
  Object object;
  int error = find(request.handle, request.path, false, object);
  // That in which several folders are served is none itself.
  if (error == EROFS) return shared_.tree.stat(request.path, reply.state.attributes);
  if (error != 0) return error;
  reply.state = state_of(object.get(), &error);
  Xattrs found;
  const XattrKinds kinds{shared_.options.owners, request.acls};
  if (error == 0) error = get_xattrs(object.get(), room.size(), found, kinds);
  if (error == 0) reply.bytes = static_cast<std::uint32_t>(encode(found, room));
  return error;
}

void ObjectRequests::lost() {
  if (key_) shared_.kept->lost(*key_, Clock::now());
  key_.reset();
}

}  // namespace weft::files
