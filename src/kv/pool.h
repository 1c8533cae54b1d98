// All pages of a store, and the memory they are in. Without a file they stay there. With one, at most so many
// bytes are in memory, less what texts take beside their pages: the pages used longest ago go to the file
// (or, where memory holds less than a generated token reads, those that it has done with), come back when
// they are asked for or expected, and are held against their checksum when they do. From the first generated
// token on, where memory is short, pages whose type allows it lie packed there (kernels/packed_bf16.h): so
// more of them have room. In a file that takes them so they do from the start.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/soon_read.h"
#include "base/thread_pool.h"
#include "kv/page.h"
#include "kv/page_io.h"
#include "kv/traffic.h"

namespace longheads {

// A page could not be brought, or room made for it. Thrown, since it is met in the middle of parallel work.
class PageError : public std::runtime_error {
 public:
  explicit PageError(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

class KvPool;

// A page that stays in memory, where it is, as long as this object.
class PinnedPage {
 public:
  PinnedPage() = default;
  PinnedPage(PinnedPage&& other) noexcept { *this = std::move(other); }
  PinnedPage& operator=(PinnedPage&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(page_, other.page_);
    std::swap(data_, other.data_);
    std::swap(packed_, other.packed_);
    return *this;
  }
  ~PinnedPage();

  // Null where it lies packed, and has to be read so.
  std::byte* data() const { return data_; }
  const PackedBf16& packed() const { return packed_; }

 private:
  friend class KvPool;
  KvPool* pool_ = nullptr;  // null: there is nothing to let go
  KvPage* page_ = nullptr;
  std::byte* data_ = nullptr;
  PackedBf16 packed_ = {};
};

struct KvDiskOptions {
  uint64_t ram_bytes =
      UINT64_MAX;           // of pages that are in memory at a time, and of reservations (kv/reservation.h)
  int64_t most_pinned = 0;  // pages that readers hold at a time, at most; they cannot leave
  std::shared_ptr<PageFile> file;  // where pages go
  std::string io = "auto";         // MakePageIo
};

// Thread-safe, but for UseDisk.
class KvPool : public std::enable_shared_from_this<KvPool> {
 public:
  // `conversions` turn float32 to the pages' type and back.
  static std::shared_ptr<KvPool> Create(const KvGeometry& geometry,
                                        const VectorKernels& conversions = FastestVectorKernels());
  ~KvPool();

  const KvGeometry& geometry() const { return geometry_; }
  const PageLayout& layout() const { return *layout_; }

  // The least that ram_bytes may be, or twice what is pinned.
  static constexpr int64_t kLeastPages = 64;
  // From now on pages may leave memory. Before there is any.
  Status UseDisk(const KvDiskOptions& options);
  bool on_disk() const { return on_disk_; }
  // Beside ram_bytes, where pages are on disk: of what is being written packed, and of what was discarded and
  // waits for the rest of its huge page, at most.
  uint64_t ImagesBytes() const;
  uint64_t IdleBytes() const { return frames_.most_idle_bytes() + packed_.most_idle_bytes(); }
  int64_t ram_bytes() const { return ram_frames_ * geometry_.PageStride(); }
  uint64_t reserved_bytes() const;  // now, by all (kv/reservation.h)
  // Of them, those of pages beside so many reserved bytes: the least that UseDisk takes where those leave
  // less.
  uint64_t PageBytesBeside(uint64_t reserved) const {
    return static_cast<uint64_t>(FramesBeside(reserved) * geometry_.PageStride());
  }
  std::shared_ptr<PageFile> file() const;  // of WriteTo
  std::string_view io_name() const { return io_ ? io_->name() : "none"; }

  // What a page takes in memory wherever it lies: itself, the counts of who shares it, its entry in a
  // sequence's table, which may have grown to twice what it holds, and what the allocator adds.
  static constexpr uint64_t kTableBytes = 256;

  // What is written from now on goes there, and no longer to what is returned. on_disk() only.
  std::shared_ptr<PageFile> WriteTo(std::shared_ptr<PageFile> file);

  // Pages of zeros, by all of these threads where there are any: memory that was never used is made by the
  // system as it is first written to. Throws std::bad_alloc, and PageError where their file gives places at
  // once.
  std::vector<std::shared_ptr<KvPage>> Acquire(int64_t n, ThreadPool* threads);
  std::shared_ptr<KvPage> Acquire() { return std::move(Acquire(1, nullptr).front()); }
  // The page will be written to: its file, where it gives places at once, gives one if it needs another.
  // Throws as Acquire does.
  void WillWrite(KvPage& page);
  // A page that is on disk already. on_disk() only.
  std::shared_ptr<KvPage> Adopt(std::shared_ptr<PageFile> file, uint64_t offset, uint64_t checksum);

  // The page in memory; to be read, or to be changed. Both throw PageError, and std::bad_alloc.
  PinnedPage Read(KvPage& page);
  // `fills` it: else more is about to be added, and it goes to disk where no filled page can.
  PinnedPage Write(KvPage& page, bool fills);
  // The same to be read, as it lies: packed, too, while packs() is true.
  PinnedPage ReadAsItLies(KvPage& page);
  // Where it lies or, if it is packed, unpacked into `scratch`, which has PageStride() bytes; none is needed
  // while packs() is false.
  PinnedPage Read(KvPage& page, std::byte* scratch);
  bool packs() const { return packing_.load(std::memory_order_relaxed); }

  // Where in memory one reads who begins to read the page at its `offset`, to be asked for ahead and no more:
  // it may leave at once. Null where it is not there, or nobody read it since it came. Counts as no use of
  // it; who looks for room meanwhile may pass it over.
  const std::byte* Peek(KvPage& page, int64_t offset) const;

  // These will be asked for soon, in this order: for certain, likely or perhaps. Those that are in memory
  // stay before others; the rest is sent for, as much as there is room for, but only where it drives out
  // nothing what perhaps will be asked for, and what is likely to be and was not by most of the last tokens.
  // kAgain: for certain, by a generated token, and by others like it: what several of them named stays before
  // what one named later. Nothing where pages do not leave memory.
  enum class Asked : uint8_t { kAgain, kForCertain, kLikely, kPerhaps };
  void ReadAhead(std::span<KvPage* const> pages, Asked asked) { ReadAhead(pages, asked, 1, {}); }
  // kAgain: by a token of one of so many texts, which go through the layers together. What of `foreseen` came
  // as likely for this plan, which does not name it, leaves before others.
  void ReadAgain(std::span<KvPage* const> pages, int64_t n_texts, std::span<KvPage* const> foreseen) {
    ReadAhead(pages, Asked::kAgain, n_texts, foreseen);
  }
  // Somebody uses it all the time, or no longer: such pages stay in memory while others can go, as long as
  // they are no more than seven eighths of what it holds. Nothing where pages do not leave memory.
  void Keep(KvPage& page, bool keep);
  // The same for the first of these, until a token reads their layer and head, number `table` of all
  // (EndKeeping), or a prompt keeps others there, of whatever sequence: as many as are the table's share of
  // three quarters of memory, or of less where `n_coming` pages, which come and go meanwhile, need more.
  // on_disk() only. Throws std::bad_alloc; then nothing is kept there.
  void KeepForToken(std::size_t table, std::span<KvPage* const> pages, int64_t n_coming);
  void EndKeeping(std::size_t table);
  // Whether nobody would wait for it.
  bool IsNear(const KvPage& page) const;

  // Which of these, that are on their way mostly, may be read next: the first that is in memory or has to be
  // sent for. Waits until there is one.
  std::size_t AwaitOne(std::span<KvPage* const> pages);

  // What else is read soon: who waits for a page asks for it meanwhile.
  SoonRead& while_waiting() { return while_waiting_; }

  // All of these are on disk as they are, in the file of WriteTo, when it returns. Not synced.
  Status Flush(std::span<KvPage* const> pages);
  struct Place {
    std::shared_ptr<PageFile> file;
    uint64_t offset;
    uint64_t checksum;
  };
  // Of a page that was flushed, and not written to since.
  Place PlaceOf(const KvPage& page) const;

  // Bytes of pages that were given back and wait to be used again.
  uint64_t FreeBytes() const;
  // Pages alive now; frames that pages have in memory, of which one that is read to be packed has two, and of
  // these the packed ones; and what all frames take, free ones too, but those of ImagesBytes and IdleBytes.
  int64_t n_pages() const;
  int64_t n_near() const;
  int64_t n_packed() const;
  int64_t n_images() const;  // frames of ImagesBytes that pages have
  uint64_t MemoryBytes() const;
  KvTraffic traffic();  // what is being read counts: waits for it

 private:
  friend class PinnedPage;
  friend class KvReservation;

  KvPool(const KvGeometry& geometry, const VectorKernels& conversions)
      : geometry_(geometry),
        layout_(MakePageLayout(geometry.type, geometry.head_dim, conversions)),
        frames_({.data_bytes = geometry.PageBytes()}) {}

  // Transfers of pages that make room under way at a time: enough for a disk to be busy.
  static constexpr int64_t kMostWrites = 32;
  int64_t FramesBeside(uint64_t reserved) const;
  void Reserve(uint64_t before, uint64_t now);

  void ReadAhead(std::span<KvPage* const> pages, Asked asked, int64_t n_texts,
                 std::span<KvPage* const> foreseen);
  std::shared_ptr<KvPage> Own(std::unique_ptr<KvPage> page);
  void Release(KvPage* page);
  void Unpin(KvPage& page);
  PinnedPage Pin(KvPage& page);
  // Without the lock, where nobody else changes the page's place; whether it could.
  bool PinReady(KvPage& page);
  // It may leave its frame: nobody has it pinned, and from now on nobody can but with the lock.
  // `pins` is what they were then.
  static bool Retire(KvPage& page, uint32_t* pins = nullptr);
  void SetUnwritten(KvPage& page, KvPage::Unwritten unwritten);
  bool OpenPress() const;
  bool WritesPress() const;
  void SeeWhatPresses();
  // Into memory, the lock let go meanwhile; whether it had to come from disk.
  bool Bring(KvPage& page, std::unique_lock<std::mutex>& lock);
  PinnedPage Pinned(KvPage& page);
  void CountPlan(std::span<KvPage* const> pages, int64_t n_texts);  // of a generated token
  bool SparesKept() const { return n_kept_ <= MostPages() / 8 * 7; }
  void AddKeeper(KvPage& page, int change);
  void EndKeepingOf(std::size_t table);
  std::span<std::byte> BytesOf(const KvPage& page) const;

  bool AnyUnderWay() const { return n_reading_ > 0 || n_writing_ > 0 || !landed_.empty(); }
  // Until a transfer ended, or a little while: whether what the caller waits for came, it has to see.
  void AwaitChange(std::unique_lock<std::mutex>& lock);

  // With the lock held; those that take it may let it go meanwhile.
  PageFrame TakeFrame(std::unique_lock<std::mutex>& lock);
  // That memory holds: more than frames, as far as they lie packed now.
  int64_t MostPages() const {
    const int64_t frame = frames_.frame_bytes();
    return most_frames_ + packed_.n_used() * (frame - packed_.frame_bytes()) / frame;
  }
  // Of all three stores, free ones too.
  uint64_t FrameBytes() const { return frames_.bytes() + packed_.bytes() + landing_.bytes(); }
  bool HasSurplus() const { return on_disk_ && FrameBytes() > most_bytes_; }
  // A free one, or a new one where memory is left for it or others have free frames to give back: else none.
  // Throws std::bad_alloc.
  PageFrame FreeFrame(FrameStore& store);
  void GiveBack(PageFrame frame);
  // To the system. A page from further behind moves to where one lay: so what is given back lies together,
  // and the others stay in huge pages of the system, where readers find places sooner.
  void Discard(PageFrame frame);
  // Whether the page, if it lies further behind, lies in `frame` now, and `frame` is what it left.
  bool Move(KvPage& page, PageFrame& frame);
  // It has the frame from now on, of whichever store, and may be asked to move.
  void SetFrame(KvPage& page, PageFrame frame);
  // Frames of landing_, at most; and most of all.
  int64_t MostLanding() const;
  static constexpr int64_t kMostLanding = 128;
  // All that the page has in memory.
  void GiveBackFrames(KvPage& page);
  // What reservations took of the pages' memory, as far as nothing has to be waited for.
  void DiscardSurplus();
  void Settle(KvPage& page, PageFrame frame);
  void Touch(KvPage& page);   // it leaves after all others
  void Demote(KvPage& page);  // before them
  void Unlink(KvPage& page);
  // Whether a page whose turn it is to leave stays for another round.
  static bool PassOver(KvPage& page);
  static bool MayLeave(const KvPage& page, bool spare_kept);  // unless it is pinned
  // The page's frame, where it can leave it at once.
  PageFrame Leave(KvPage& page, bool spare_kept);
  enum class Evict : uint8_t { kSparingKept, kAny };
  // From one store alone, where one is given.
  PageFrame EvictOne(Evict which, const FrameStore* from = nullptr);
  // A plan of the newest round named it: the next round may be expected to. Where that is so of the page used
  // longest ago, memory holds less than tokens read in a round, and pages that left in the order of their
  // last use would each leave just before they are read again. Then those leave that the round has done with.
  // (Some rounds are longer: plans come from several threads.)
  bool IsOfThisRound(const KvPage& page) const {
    return n_round_ != 0 && page.planned_at_ != 0 && page.ahead_ != KvPage::Ahead::kInVain &&
           n_plans_ - page.planned_at_ <= n_round_ + n_round_ / 8;
  }
  PageFrame EvictDone(bool spare_kept, const FrameStore* from);
  // KvPage::named_, of the eight rounds that end with the present one.
  uint8_t NamedUntilNow(const KvPage& page) const;
  // Whether a page that a plan of the last token named will be named again: most of the tokens before it read
  // it, too. Of LongHeads' pages the next token reads three of four that six of eight did, and half of those
  // that four did: such readings would take the disk from what is wanted.
  static bool IsLikely(const KvPage& page) { return std::popcount(page.named_) >= 6; }
  // A frame of `store` that others left, or for which they made room; none where no page can leave.
  PageFrame Vacate(FrameStore& store, Evict which);
  // Sends filled pages to disk, those used longest ago first, as many as may be under way; open ones where
  // there is none, and where `open_too`. Whether any went.
  bool WriteSome(std::unique_lock<std::mutex>& lock, bool open_too);
  // What is to be submitted, without the lock, so that the page goes to disk; nothing, and write_error_,
  // where it has no place there.
  std::optional<PageTransfer> BeginWrite(KvPage& page);

  // As far as is known the page's numbers can be packed, now.
  static bool MayPack(const KvPage& page);
  // They are, into packed_; whether they could. The caller has the page's frame.
  bool Pack(KvPage& page);
  bool PackInto(KvPage& page, PageFrame& packed);
  // The frame of a page that is packed into this one: neither goes back to the system. None where none of
  // those used longest ago lies as it is and can be packed now.
  PageFrame Exchange(PageFrame& packed);
  // Of these, so many at most, where memory is short.
  void PackSome(std::span<KvPage* const> pages, std::size_t most);
  // As it is again.
  void Unpack(KvPage& page);

  // The page's, if it is to be packed there and there is memory for it.
  PageFrame TakeImage(const KvPage& page);
  // Without the lock: to disk, packed where they can be.
  void Submit(std::span<PageTransfer> writes);
  PageTransfer ReadingOf(KvPage& page);
  // What came from disk, where readers want it: packed into packed_, where there is one, else as it is in
  // frame_; whether it is packed.
  bool Arrange(KvPage& page);
  // Of a page that lies packed in memory: words and the rest of kernels/packed_bf16.h.
  std::pair<std::span<std::byte>, std::span<std::byte>> PackedBytesOf(KvPage& page) const;
  // There, from frame_, of a page that is packed on disk.
  void CopyImage(KvPage& page) const;
  uint64_t ChecksumOf(std::span<const std::byte> bytes, bool is_packed) const;
  void Came(KvPage& page, uint64_t n_bytes);  // from disk
  void TellOfEnd(KvPage& page);               // of its transfer
  // See PageIo. A page that is copied to other memory is taken as soon as it is there; the frame that it
  // landed in leaves with the end of its reading.
  bool Landed(const PageTransfer& transfer);
  void LeaveLanded(const std::byte* data);
  void Done(const PageTransfer& transfer, const Status& status);

  KvGeometry geometry_;
  std::unique_ptr<const PageLayout> layout_;
  bool on_disk_ = false;  // there is an io_; beside what does not change

  mutable std::mutex mutex_;
  std::condition_variable changed_;    // a transfer ended
  std::condition_variable came_;       // the reading of a page that is awaited ended, where io_ has threads
  bool awaiting_ = false;              // one thread is in io_->Await
  std::atomic<uint64_t> n_ended_ = 0;  // transfers
  SoonRead while_waiting_;
  // Whether there is something to be done when a page is let go, or was. Read without the lock by all who let
  // pages go: on a line of its own.
  alignas(64) std::atomic<bool> presses_ = false;
  // Hits of PinReady, and readings of packed pages. Threads share few of them: one would go from core to
  // core.
  struct alignas(64) Count {
    std::atomic<uint64_t> ready = 0;
    std::atomic<uint64_t> packed = 0;
  };
  std::array<Count, 16> counts_;
  Count& CountOfThread();
  FrameStore frames_;  // of pages as they are
  FrameStore packed_;  // this and the next on disk alone
  // Of pages as they are, for those that are packed once they are read. Few that are used again and again: so
  // they stay in huge pages of the system (kLeastForHuge), where others come and go.
  FrameStore landing_;
  std::vector<PageFrame> landed_;  // of these: what was read there is taken, but its reading has not ended
  // What goes to disk packed, for as long as it takes: words and the rest of kernels/packed_bf16.h one
  // behind the other. Few, and beside the pages' memory (ImagesBytes).
  FrameStore images_;
  int64_t image_bytes_ = 0;            // of them, what a page fills; 0: pages go to disk as they are
  std::atomic<bool> packing_ = false;  // since a token was generated: what is read then is read again
  bool generating_ = false;            // by the newest plan
  uint32_t n_plans_ = 0;               // of generated tokens, each for one layer and head
  // Of them, those of a token of each text that generates together; 0 where others have read since, as a
  // prompt does, which reads its pages several times over.
  uint32_t n_round_ = 0;
  std::array<uint32_t, 2> none_done_at_ =
      {};  // n_plans_ as EvictDone last looked in vain: of all, of one store
  int64_t n_pages_ = 0;
  // With a file: what UseDisk was given, and the least it takes; of pages, beside what is reserved.
  int64_t ram_frames_ = 0;
  int64_t least_frames_ = 0;
  uint64_t reserved_ = 0;  // bytes
  int64_t most_frames_ = 0;
  uint64_t most_bytes_ = 0;
  int64_t n_reading_ = 0;  // transfers under way
  int64_t n_writing_ = 0;
  int64_t n_open_ = 0;  // of Unwritten, each
  int64_t n_filled_ = 0;
  int64_t n_kept_ = 0;  // wherever they are
  // Of them, those of KeepForToken: [n_layers * n_kv_heads]. How many is read without the lock, too.
  std::vector<std::vector<KvPage*>> for_token_;
  std::atomic<int64_t> n_for_token_ = 0;
  std::optional<Error> write_error_;
  KvPage* oldest_ = nullptr;
  KvPage* newest_ = nullptr;
  KvTraffic traffic_;
  std::shared_ptr<PageFile> file_;
  std::unique_ptr<PageIo> io_;  // null: pages stay in memory. Goes first: it calls Done.
};

}  // namespace longheads
