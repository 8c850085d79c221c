// SPDX-License-Identifier: Apache-2.0
// What a store promises, on every engine: io_uring and POSIX, with O_DIRECT and through the page cache, and
// with completions that come late, in another order and a part at a time.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "engines.h"
#include "faulty_engine.h"
#include "headrace/error.h"
#include "test_folder.h"

namespace headrace::nvme::test {
namespace {

constexpr size_t kMiB = 1u << 20;

struct Variant {
  const char* name;
  EngineKind kind;
  bool direct;
  bool difficult;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class StoreConformance : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (GetParam().kind == EngineKind::io_uring && !has_io_uring()) {
      GTEST_SKIP() << "io_uring: " << probe_io_uring().reason;
    }
    if (!GetParam().difficult) return;
    plan_.reorder = true;
    plan_.on_bytes = [](const Operation& operation) {
      return operation.bytes > 8192 ? operation.bytes / 8192 * 4096 : operation.bytes;
    };
    plan_.armed = true;
  }

  ExtentStore make_store(size_t chunk_bytes = 2 * kCrcBytes, unsigned queue_depth = 4) {
    EngineFactory engine = real_engine(GetParam().kind);
    if (GetParam().difficult) engine = faulty(plan_, std::move(engine));
    return ExtentStore({.path = folder_.path(),
                        .run_id = "",
                        .chunk_bytes = chunk_bytes,
                        .queue_depth = queue_depth,
                        .direct = GetParam().direct},
                       engine);
  }

  TestFolder folder_;
  FaultPlan plan_;
};

INSTANTIATE_TEST_SUITE_P(Engines, StoreConformance,
                         testing::Values(Variant{"IoUring", EngineKind::io_uring, true, false},
                                         Variant{"IoUringBuffered", EngineKind::io_uring, false, false},
                                         Variant{"IoUringDifficult", EngineKind::io_uring, true, true},
                                         Variant{"Posix", EngineKind::posix, true, false},
                                         Variant{"PosixBuffered", EngineKind::posix, false, false},
                                         Variant{"PosixDifficult", EngineKind::posix, true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(StoreConformance, OddSizesComeBackByteForByteInFilesOfThatSize) {
  ExtentStore store = make_store();
  for (const size_t bytes : {size_t(1), size_t(511), size_t(512), size_t(513), size_t(4095), size_t(4096),
                             size_t(4097), kMiB - 1, kMiB, kMiB + 1, size_t(5'000'001)}) {
    const ExtentId id = store.create("tensor-" + std::to_string(bytes), bytes);
    const Buffer written(bytes, bytes);
    Buffer read(bytes);
    store.wait(store.write(id, 0, written.span()));
    store.wait(store.read(id, 0, read.span()));
    EXPECT_TRUE(holds(read.span(), bytes)) << bytes;

    const std::vector<char> file = file_bytes(store.extent(id).path());
    ASSERT_EQ(file.size(), bytes);
    EXPECT_TRUE(holds(std::as_bytes(std::span(file)), bytes)) << bytes;
  }
}

TEST_P(StoreConformance, FiftyMillionBytesComeBack) {
  constexpr size_t kBytes = 50'000'000;
  ExtentStore store = make_store(kMiB, 16);
  const ExtentId id = store.create("large", kBytes);
  const Buffer buffer(kBytes, 3);
  store.wait(store.write(id, 0, buffer.span()));
  std::ranges::fill(buffer.span(), std::byte{0});
  store.wait(store.read(id, 0, buffer.span()));
  EXPECT_TRUE(holds(buffer.span(), 3));
  EXPECT_EQ(std::filesystem::file_size(store.extent(id).path()), kBytes);
}

TEST_P(StoreConformance, AnExtentLargerThanAnyBufferPassesThroughTwoInAnyOrder) {
  constexpr size_t kPieces = 64;
  ExtentStore store = make_store(kMiB);
  const ExtentId id = store.create("large", kPieces * kMiB);
  const std::array<Buffer, 2> buffers = {Buffer(kMiB), Buffer(kMiB)};
  std::array<Request, 2> requests{};
  std::vector<size_t> order(kPieces);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(21);

  std::ranges::shuffle(order, random);
  for (size_t i = 0; i < kPieces; ++i) {
    store.wait(std::exchange(requests[i % 2], {}));
    fill(buffers[i % 2].span().first(4096), 21, order[i] * kMiB);
    fill(buffers[i % 2].span().last(4096), 21, (order[i] + 1) * kMiB - 4096);
    requests[i % 2] = store.write(id, order[i] * kMiB, buffers[i % 2].span());
  }
  for (Request& request : requests) store.wait(std::exchange(request, {}));

  std::ranges::shuffle(order, random);
  for (size_t i = 0; i < kPieces + 2; ++i) {
    store.wait(std::exchange(requests[i % 2], {}));
    if (i >= 2) {
      const size_t piece = order[i - 2];
      EXPECT_TRUE(holds(buffers[i % 2].span().first(4096), 21, piece * kMiB)) << piece;
      EXPECT_TRUE(holds(buffers[i % 2].span().last(4096), 21, (piece + 1) * kMiB - 4096)) << piece;
    }
    if (i < kPieces) requests[i % 2] = store.read(id, order[i] * kMiB, buffers[i % 2].span());
  }
}

TEST_P(StoreConformance, MisalignedMemoryWorks) {
  constexpr size_t kBytes = 3 * kMiB + 777;
  ExtentStore store = make_store();
  const ExtentId id = store.create("misaligned", kBytes);
  const Buffer memory(kBytes + 8192);
  const std::span<std::byte> source = memory.span().subspan(1, kBytes);
  fill(source, 5);
  store.wait(store.write(id, 0, source));
  std::ranges::fill(memory.span(), std::byte{0});
  store.wait(store.read(id, 0, memory.span().subspan(513, kBytes)));
  EXPECT_TRUE(holds(memory.span().subspan(513, kBytes), 5));
}

TEST_P(StoreConformance, RegisteredMemoryWorksInsideAndAcrossItsEnd) {
  ExtentStore store = make_store();
  const Buffer memory(3 * kMiB);
  store.register_memory(memory.span().first(kMiB));
  const ExtentId id = store.create("registered", 2 * kMiB);
  const std::span<std::byte> across = memory.span().subspan(kMiB / 2, 2 * kMiB);
  fill(across, 6);
  store.wait(store.write(id, 0, across));
  std::ranges::fill(memory.span(), std::byte{0});
  store.wait(store.read(id, 0, across));
  EXPECT_TRUE(holds(across, 6));
}

TEST_P(StoreConformance, OverwritingReplacesOnlyThePiecesWritten) {
  ExtentStore store = make_store();
  const ExtentId id = store.create("pieces", 4 * kCrcBytes + 100);
  Buffer buffer(4 * kCrcBytes + 100, 1);
  store.wait(store.write(id, 0, buffer.span()));
  fill(buffer.span().first(kCrcBytes), 2);
  store.wait(store.write(id, 2 * kCrcBytes, buffer.span().first(kCrcBytes)));
  store.wait(store.read(id, 0, buffer.span()));
  EXPECT_TRUE(holds(buffer.span().first(2 * kCrcBytes), 1));
  EXPECT_TRUE(holds(buffer.span().subspan(2 * kCrcBytes, kCrcBytes), 2));
  EXPECT_TRUE(holds(buffer.span().subspan(3 * kCrcBytes), 1, 3 * kCrcBytes));
}

TEST_P(StoreConformance, ReadingWhatWasNeverWrittenNamesThePiece) {
  ExtentStore store = make_store();
  const ExtentId id = store.create("half", 2 * kCrcBytes);
  const Buffer buffer(2 * kCrcBytes, 1);
  store.wait(store.write(id, 0, buffer.span().first(kCrcBytes)));
  try {
    store.wait(store.read(id, 0, buffer.span()));
    FAIL() << "the second piece was never written";
  } catch (const CorruptData& error) {
    EXPECT_EQ(error.path, store.extent(id).path());
    EXPECT_EQ(error.offset, kCrcBytes);
    EXPECT_THAT(error.what(), testing::HasSubstr("never written"));
  }
}

TEST_P(StoreConformance, AFlippedBitOnTheDriveIsFoundByNameAndOffset) {
  ExtentStore store = make_store();
  const size_t bytes = 4 * kCrcBytes + 100;
  const ExtentId id = store.create("flipped", bytes);
  const Buffer buffer(bytes, 1);
  store.wait(store.write(id, 0, buffer.span()));
  for (const uint64_t at : {uint64_t(0), uint64_t(3 * kCrcBytes - 1), uint64_t(bytes - 1)}) {
    flip_bit(store.extent(id).path(), at);
    try {
      store.wait(store.read(id, 0, buffer.span()));
      ADD_FAILURE() << "bit at " << at << " was flipped";
    } catch (const CorruptData& error) {
      EXPECT_EQ(error.path, store.extent(id).path());
      EXPECT_EQ(error.offset, at / kCrcBytes * kCrcBytes);
    }
    flip_bit(store.extent(id).path(), at);
    EXPECT_NO_THROW(store.wait(store.read(id, 0, buffer.span())));
  }
}

TEST_P(StoreConformance, ATruncatedFileIsFoundByNameAndOffset) {
  ExtentStore store = make_store();
  const ExtentId id = store.create("truncated", kMiB);
  const Buffer buffer(kMiB, 1);
  store.wait(store.write(id, 0, buffer.span()));
  ASSERT_EQ(::truncate(store.extent(id).path().c_str(), 3 * kCrcBytes + 1000), 0);
  EXPECT_NO_THROW(store.wait(store.read(id, 0, buffer.span().first(3 * kCrcBytes))));
  try {
    store.wait(store.read(id, 0, buffer.span()));
    FAIL() << "the file is short";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path, store.extent(id).path());
    EXPECT_EQ(error.error_code, 0);
    EXPECT_GE(error.offset, 3 * kCrcBytes);
  }
}

TEST_P(StoreConformance, NothingToWaitForReturnsAtOnce) {
  ExtentStore store = make_store();
  store.wait(Request{});
  EXPECT_TRUE(store.done(Request{}));
  const ExtentId id = store.create("empty", 0);
  store.wait(store.read(id, 0, {}));
  EXPECT_EQ(std::filesystem::file_size(store.extent(id).path()), 0u);
}

TEST_P(StoreConformance, ManyRequestsMayBeInFlightAndAreWaitedForInAnyOrder) {
  constexpr size_t kRequests = 3000;  // more than a lane keeps records of
  ExtentStore store = make_store();
  const ExtentId id = store.create("small", 4096);
  const Buffer buffers(kRequests * 4096);
  fill(buffers.span().first(4096), 4);
  store.wait(store.write(id, 0, buffers.span().first(4096)));
  std::vector<Request> requests;
  for (size_t i = 0; i < kRequests; ++i) {
    requests.push_back(store.read(id, 0, buffers.span().subspan(i * 4096, 4096)));
  }
  std::ranges::reverse(requests);
  for (const Request& request : requests) store.wait(request);
  for (const Request& request : requests) EXPECT_TRUE(store.done(request));
  EXPECT_TRUE(holds(buffers.span().last(4096), 4));
}

TEST_P(StoreConformance, ThreadsShareAStore) {
  constexpr size_t kThreads = 4;
  ExtentStore store = make_store();
  std::vector<ExtentId> ids;
  for (size_t t = 0; t < kThreads; ++t) ids.push_back(store.create("of-" + std::to_string(t), kMiB + 5));
  std::vector<std::jthread> threads;
  std::atomic<unsigned> wrong{0};
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const Buffer out(kMiB + 5);
      const Buffer in(kMiB + 5);
      for (uint64_t round = 0; round < 5; ++round) {
        fill(out.span().first(8192), t * 100 + round);
        store.wait(store.write(ids[t], 0, out.span()));
        const Request request = store.read(ids[t], 0, in.span());
        while (!store.done(request)) std::this_thread::yield();
        store.wait(request);
        if (!std::ranges::equal(out.span(), in.span())) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0u);
}

TEST_P(StoreConformance, DestructionWithTransfersInFlightIsCleanAndRemovesTheFolder) {
  const Buffer buffer(16 * kMiB, 1);
  for (int round = 0; round < 5; ++round) {
    ExtentStore store = make_store();
    const ExtentId id = store.create("abandoned", 16 * kMiB);
    for (size_t i = 0; i < 16; ++i) {
      (void)store.write(id, i * kMiB, buffer.span().subspan(i * kMiB, kMiB));
    }
  }
  EXPECT_EQ(folder_.entries(), 0u);
}

TEST_P(StoreConformance, StatisticsCountTheBytesOfTransfersAndNotTheReservation) {
  ExtentStore store = make_store();
  const ExtentId id = store.create("counted", kMiB);
  const Buffer buffer(kMiB, 1);
  EXPECT_EQ(store.write_stats().bytes, 0u);
  EXPECT_EQ(store.reserved_bytes(), kMiB);
  store.wait(store.write(id, 0, buffer.span()));
  store.wait(store.write(id, 0, buffer.span()));
  store.wait(store.read(id, 0, buffer.span()));
  EXPECT_EQ(store.write_stats().bytes, 2 * kMiB);
  EXPECT_EQ(store.read_stats().bytes, kMiB);
  EXPECT_GT(store.write_stats().busy_ns, 0u);
  EXPECT_EQ(store.write_stats().busy_ns, store.write_stats().busy_ns);  // stands still while idle
}

TEST_P(StoreConformance, AReservedExtentHasItsBlocksOnTheDrive) {
  ExtentStore store = make_store();
  const ExtentId id = store.create("reserved", 3 * kMiB + 7);
  struct stat status {};
  ASSERT_EQ(::stat(store.extent(id).path().c_str(), &status), 0);
  EXPECT_EQ(status.st_size, off_t(3 * kMiB + 7));
  EXPECT_GE(status.st_blocks * 512, status.st_size);
  EXPECT_EQ(store.reserved_bytes(), 3 * kMiB + 4096);
}

}  // namespace
}  // namespace headrace::nvme::test
