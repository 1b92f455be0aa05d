// Requests that may keep whoever carries them out waiting: those that make, change and remove
// files, sums and extents. What moves no octets and frees no room to speak of is done at once; the
// rest in the background, so that nobody else waits for it.
//
// Belongs to a session, as what it works with; stays while Laters::running(). One thread, the
// server's; the tasks on threads of the background touch only files, the tree and the verifier.
#pragma once

#include <string>

#include "files/protocol/data_messages.h"
#include "files/server/answers.h"
#include "files/server/laters.h"
#include "files/server/open_files.h"
#include "files/server/server_shared.h"
#include "files/server/uploads.h"

namespace weft::files {

// A name that outlives its message.
struct KeptPath {
  explicit KeptPath(const PathName& path) : text(path.text), links(path.links) {}
  [[nodiscard]] PathName name() const { return {text, links}; }
  std::string text;
  std::uint16_t links;
};

class FileRequests {
 public:
  FileRequests(Shared& shared, Answers& answers, OpenFiles& files, Laters& laters,
               const Uploads& uploads)
      : shared_(shared), answers_(answers), files_(files), laters_(laters), uploads_(uploads) {}
  FileRequests(const FileRequests&) = delete;
  FileRequests& operator=(const FileRequests&) = delete;

  // Each answers by itself, perhaps later, unless it returns an errno.
  [[nodiscard]] int create(const CreateRequest& request, const Asked& asked);
  [[nodiscard]] int draft(const DraftRequest& request, const Asked& asked);
  [[nodiscard]] int edit(const EditRequest& request, const Asked& asked);
  [[nodiscard]] int set(const SetRequest& request, const Asked& asked);
  [[nodiscard]] int commit(const CommitRequest& request, const Asked& asked);
  [[nodiscard]] int sum(const SumRequest& request, const Asked& asked);
  [[nodiscard]] int extents(const ExtentsRequest& request, const Asked& asked);
  [[nodiscard]] int rename(const RenameRequest& request, const Asked& asked);
  [[nodiscard]] int remove(const RemoveRequest& request, const Asked& asked);

 private:
  [[nodiscard]] bool may_open() const { return files_.have_room(laters_.size()); }
  [[nodiscard]] bool frees_much(const PathName& path) const;

  Shared& shared_;
  Answers& answers_;
  OpenFiles& files_;
  Laters& laters_;
  const Uploads& uploads_;
};

}  // namespace weft::files
