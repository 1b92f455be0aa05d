// Requests about what a file is besides its contents, and about who has it open: owners, further
// names, extended attributes, leases, files that outlive a connection.
//
// Belongs to a session, as what it works with. One thread, the server's; the tasks on threads of
// the background touch only files and the tree.
#pragma once

#include <optional>

#include "files/protocol/data_messages.h"
#include "files/protocol/file_xattrs.h"
#include "files/server/answers.h"
#include "files/server/laters.h"
#include "files/server/open_files.h"
#include "files/server/server_shared.h"

namespace weft::files {

class ObjectRequests {
 public:
  // Files that `laters` opens have their places already.
  ObjectRequests(Shared& shared, OpenFiles& files, const Laters& laters)
      : shared_(shared), files_(files), laters_(laters) {}
  ObjectRequests(const ObjectRequests&) = delete;
  ObjectRequests& operator=(const ObjectRequests&) = delete;

  // Each returns an errno.
  [[nodiscard]] int lease(const LeaseRequest& request, LeaseReply& reply);
  [[nodiscard]] int link(const LinkRequest& request, NoReply& reply);
  [[nodiscard]] int own(const OwnRequest& request, NoReply& reply);
  [[nodiscard]] int set_xattr(const SetXattrRequest& request, NoReply& reply);
  [[nodiscard]] int keep(const KeepRequest& request, KeepReply& reply);
  [[nodiscard]] int reopen(const ReopenRequest& request, ReopenRequest::Reply& reply);
  // The attributes of a file as entries, in `room`.
  [[nodiscard]] int xattrs(const XattrsRequest& request, XattrsReply& reply,
                           std::span<std::uint8_t> room);
  // The session is gone.
  void lost();

 private:
  // The file that a request names, for a change of it or not: a descriptor that lives as long as
  // `opened` and `file`. -1 with `error`.
  struct Object {
    OpenFiles::File file;
    os::Fd opened;
    [[nodiscard]] int get() const { return file != nullptr ? file->get() : opened.get(); }
  };
  [[nodiscard]] int find(std::uint64_t handle, const PathName& path, bool changes, Object& out);

  Shared& shared_;
  OpenFiles& files_;
  const Laters& laters_;
  std::optional<KeepKey> key_;
};

}  // namespace weft::files
