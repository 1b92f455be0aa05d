// Names and files that `put --durable` and `sync --durable` have the server flush.
#include "files/client/push.h"

namespace weft::files {

// With --durable, the names of what was made, replaced, removed and found. Files are flushed
// before.
Outcome<void> Push::flush_folders() {
  for (const std::string& folder : unflushed_.take()) {
    SetRequest request;
    request.path = {folder, folder.size() < links_ ? kLinksAnywhere : links_};
    request.what = kSetFlush;
    if (const auto reply = ask(request); !reply) return tl::unexpected(reply.error());
  }
  if (!names_lost_) return {};
  return failed(EIO, server_.host,
                "the server was started anew meanwhile, or failed to flush: folders, links and "
                "removals may not be on its disk; run this again");
}

// A file that an earlier copy has left need not be on the disk.
Outcome<void> Push::flush_there(const std::string& to) {
  unflushed_.note_parent_of(to);
  SetRequest request;
  request.path = named(to);
  request.what = kSetFlush;
  const auto reply = client_->call(request);
  return reply ? Outcome<void>() : tl::unexpected(reply.error());
}

}  // namespace weft::files
