// Requests about names that are answered at once.
//
// Made for one request. One thread, the server's.
#pragma once

#include <string>

#include "files/protocol/data_messages.h"
#include "files/protocol/tree.h"

namespace weft::files {

class TreeRequests {
 public:
  explicit TreeRequests(const Tree& tree) : tree_(tree) {}

  // Each returns an errno.
  [[nodiscard]] int stat(const StatRequest& request, StatReply& reply) {
    return tree_.stat(request.path, reply.attributes);
  }
  [[nodiscard]] int usage(const StatFsRequest& request, StatFsReply& reply) {
    return tree_.usage(request.path, reply.usage, reply.file_system);
  }
  [[nodiscard]] int make_directory(const MakeDirectoryRequest& request, NoReply& /*reply*/) {
    return tree_.make_directory(request.path, request.mode);
  }
  [[nodiscard]] int symlink(const SymlinkRequest& request, NoReply& /*reply*/) {
    return tree_.symlink(request.path, request.target);
  }
  // The reply's target lives as long as this.
  [[nodiscard]] int read_link(const ReadLinkRequest& request, ReadLinkReply& reply) {
    const int error = tree_.read_link(request.path, link_);
    reply.target = link_;
    return error;
  }

 private:
  const Tree& tree_;
  std::string link_;
};

}  // namespace weft::files
