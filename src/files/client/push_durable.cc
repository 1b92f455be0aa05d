// Names and files that `put --durable` and `sync --durable` have the server flush.
#include "files/client/push.h"

namespace weft::files {

// With --durable, the names of what was made, replaced, removed and found. Files are flushed
// before. All folders are, whatever one of them says. They are forgotten behind the last reply:
// connect() asks whether there are any. The first failure
Outcome<void> Push::flush_folders() {
  Outcome<void> ok;
  for (const std::string& folder : unflushed_.in_order()) {
    SetRequest request;
    // The folder that the user names may be a link to one.
    const std::string name = folder.empty() ? folder : folder + "/";
    request.path = {name, folder.size() < links_ ? kLinksAnywhere : links_};
    request.what = kSetFlush;
    const auto reply = link_.ask(request);
    if (!reply && ok) ok = tl::unexpected(reply.error());
    if (!link_.alive()) return ok;
  }
  unflushed_.clear();
  if (!ok || !names_lost_) return ok;
  return failed(EIO, link_.server().host,
                "the server was started anew meanwhile, or failed to flush: folders, links and "
                "removals may not be on its disk; run this again");
}

// A file that an earlier copy has left need not be on the disk. A flush that failed may succeed the
// next time, and nothing more is on the disk: such a file has to be copied anew, by this run or a
// later one. So it gets another time than the one of the source.
Outcome<void> Push::flush_there(const std::string& to, std::int64_t mtime_ns) {
  unflushed_.note_parent_of(to);
  SetRequest request;
  request.path = named(to);
  request.what = kSetFlush;
  const auto reply = link_.client().call(request);
  if (reply) return {};
  request.what = kSetTime;
  request.mtime_ns = time_of_changed(mtime_ns);
  if (link_.alive()) static_cast<void>(link_.client().call(request));
  return tl::unexpected(reply.error());
}

}  // namespace weft::files
