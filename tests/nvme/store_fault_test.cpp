// SPDX-License-Identifier: Apache-2.0
// Faults of the drive and the kernel, put between the store and a working engine.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engines.h"
#include "faulty_engine.h"
#include "headrace/error.h"
#include "test_folder.h"

namespace headrace::nvme::test {
namespace {

constexpr size_t kBytes = 8 * kCrcBytes;

class StoreFaults : public testing::Test {
 protected:
  Options options() const {
    return {.path = folder_.path(), .run_id = "", .chunk_bytes = kCrcBytes, .queue_depth = 4};
  }
  void fail_nth(unsigned n, int result) {
    plan_.on_result = [n, result](Operation&, int real, unsigned count) {
      return count == n ? result : real;
    };
  }

  TestFolder folder_;
  FaultPlan plan_;
  ExtentStore store_{options(), faulty(plan_, real_engine(EngineKind::posix))};
  Buffer data_{kBytes, 1};
  Buffer in_{kBytes};
};

TEST_F(StoreFaults, AReadErrorNamesPathOffsetBytesAndErrno) {
  const ExtentId id = store_.create("weights", kBytes);
  store_.wait(store_.write(id, 0, data_.span()));
  plan_.on_result = [](Operation& operation, int real, unsigned) {
    return operation.offset == 5 * kCrcBytes ? -EIO : real;
  };
  plan_.armed = true;
  try {
    store_.wait(store_.read(id, 0, in_.span()));
    FAIL() << "the drive failed";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path, store_.extent(id).path());
    EXPECT_EQ(error.offset, 5 * kCrcBytes);
    EXPECT_EQ(error.bytes, kCrcBytes);
    EXPECT_EQ(error.error_code, EIO);
  }
  plan_.armed = false;
  store_.wait(store_.read(id, 0, in_.span()));
  EXPECT_TRUE(holds(in_.span(), 1));
}

TEST_F(StoreFaults, AFullDriveAtAWriteLeavesEarlierDataIntact) {
  const ExtentId earlier = store_.create("earlier", kBytes);
  const ExtentId id = store_.create("later", kBytes);
  store_.wait(store_.write(earlier, 0, data_.span()));
  fail_nth(3, -ENOSPC);
  plan_.armed = true;
  try {
    store_.wait(store_.write(id, 0, data_.span()));
    FAIL() << "the drive is full";
  } catch (const IoError& error) {
    EXPECT_EQ(error.path, store_.extent(id).path());
    EXPECT_EQ(error.error_code, ENOSPC);
  }
  plan_.armed = false;
  store_.wait(store_.read(earlier, 0, in_.span()));
  EXPECT_TRUE(holds(in_.span(), 1));
}

TEST_F(StoreFaults, APieceWhoseWriteFailedCannotBeReadUntilWrittenAgain) {
  const ExtentId id = store_.create("weights", kCrcBytes);
  store_.wait(store_.write(id, 0, data_.span().first(kCrcBytes)));
  fail_nth(1, -EIO);
  plan_.armed = true;
  EXPECT_THROW(store_.wait(store_.write(id, 0, data_.span().first(kCrcBytes))), IoError);
  plan_.armed = false;
  EXPECT_THROW(store_.wait(store_.read(id, 0, in_.span().first(kCrcBytes))), CorruptData);
  store_.wait(store_.write(id, 0, data_.span().first(kCrcBytes)));
  EXPECT_NO_THROW(store_.wait(store_.read(id, 0, in_.span().first(kCrcBytes))));
}

TEST_F(StoreFaults, ShortTransfersAreResumed) {
  const ExtentId id = store_.create("weights", kBytes + 1000);
  const Buffer out(kBytes + 1000, 2);
  const Buffer in(kBytes + 1000);
  std::atomic<unsigned> operations{0};
  plan_.on_bytes = [&](const Operation& operation) {
    ++operations;
    return std::min<size_t>(operation.bytes, operation.bytes > 1000 ? 12288 : 300);
  };
  plan_.armed = true;
  store_.wait(store_.write(id, 0, out.span()));
  store_.wait(store_.read(id, 0, in.span()));
  EXPECT_TRUE(holds(in.span(), 2));
  // 128 KiB in steps of 12 KiB are 11, eight times over; 1000 bytes in steps of 300 are 4; both ways.
  EXPECT_EQ(operations, 2u * (8 * 11 + 4));
}

TEST_F(StoreFaults, AShortResultWithinABlockGoesOnAtTheBlock) {
  const ExtentId id = store_.create("weights", kCrcBytes);
  plan_.on_result = [](Operation&, int real, unsigned count) {
    return count % 2 == 1 ? real / 2 + 100 : real;
  };
  plan_.armed = true;
  store_.wait(store_.write(id, 0, data_.span().first(kCrcBytes)));
  store_.wait(store_.read(id, 0, in_.span().first(kCrcBytes)));
  EXPECT_TRUE(holds(in_.span().first(kCrcBytes), 1));
}

TEST_F(StoreFaults, InterruptedAndRefusedForNowIsTriedAgain) {
  const ExtentId id = store_.create("weights", kCrcBytes);
  plan_.on_result = [](Operation&, int real, unsigned count) {
    return count % 3 == 1 ? -EAGAIN : count % 3 == 2 ? -EINTR : real;
  };
  plan_.armed = true;
  store_.wait(store_.write(id, 0, data_.span().first(kCrcBytes)));
  store_.wait(store_.read(id, 0, in_.span().first(kCrcBytes)));
  EXPECT_TRUE(holds(in_.span().first(kCrcBytes), 1));
}

TEST_F(StoreFaults, NoProgressIsAnErrorAndNotALoop) {
  const ExtentId id = store_.create("weights", kCrcBytes);
  for (const int result : {-EAGAIN, 0}) {
    plan_.on_result = [result](Operation&, int, unsigned) { return result; };
    plan_.armed = true;
    try {
      store_.wait(store_.write(id, 0, data_.span().first(kCrcBytes)));
      ADD_FAILURE() << "result " << result;
    } catch (const IoError& error) {
      EXPECT_EQ(error.error_code, -result);
    }
    plan_.armed = false;
  }
}

TEST_F(StoreFaults, AFlippedBitOnTheWayIsFoundAndTheNextReadIsGood) {
  const ExtentId id = store_.create("weights", kBytes);
  store_.wait(store_.write(id, 0, data_.span()));
  plan_.on_result = [](Operation& operation, int real, unsigned) {
    if (operation.offset == 6 * kCrcBytes) operation.memory[77] ^= std::byte{1};
    return real;
  };
  plan_.armed = true;
  try {
    store_.wait(store_.read(id, 0, in_.span()));
    FAIL() << "a bit was flipped";
  } catch (const CorruptData& error) {
    EXPECT_EQ(error.path, store_.extent(id).path());
    EXPECT_EQ(error.offset, 6 * kCrcBytes);
    EXPECT_THAT(error.what(), testing::ContainsRegex("is 0x[0-9a-f]{8}, was 0x[0-9a-f]{8}"));
  }
  plan_.armed = false;
  EXPECT_NO_THROW(store_.wait(store_.read(id, 0, in_.span())));
}

TEST_F(StoreFaults, WithoutVerifyOnlyNeverWrittenPiecesAreRefused) {
  Options unchecked = options();
  unchecked.verify = false;
  ExtentStore store(unchecked, faulty(plan_, real_engine(EngineKind::posix)));
  const ExtentId id = store.create("weights", kBytes);
  EXPECT_THROW(store.wait(store.read(id, 0, in_.span())), CorruptData);
  store.wait(store.write(id, 0, data_.span()));
  flip_bit(store.extent(id).path(), 10);
  EXPECT_NO_THROW(store.wait(store.read(id, 0, in_.span())));
}

TEST_F(StoreFaults, AFailedRequestReturnsOnlyWhenAllItsMemoryIsFree) {
  const ExtentId id = store_.create("weights", kBytes);
  store_.wait(store_.write(id, 0, data_.span()));
  fail_nth(1, -EIO);
  plan_.armed = true;
  EXPECT_THROW(store_.wait(store_.read(id, 0, in_.span())), IoError);
  const unsigned completed = plan_.seen;
  std::memset(in_.span().data(), 0x5a, kBytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(plan_.seen, completed);
  EXPECT_TRUE(std::ranges::all_of(in_.span(), [](std::byte value) { return value == std::byte{0x5a}; }));
}

TEST_F(StoreFaults, ErrorsNobodyWaitsForDoNotBlockForEver) {
  const ExtentId id = store_.create("weights", 4096);
  store_.wait(store_.write(id, 0, data_.span().first(4096)));
  plan_.on_result = [](Operation&, int, unsigned) { return -EIO; };
  plan_.armed = true;
  const Buffer buffers((Lane::kMaxTransfers + 1) * 4096);
  const auto flood = [&] {
    for (unsigned i = 0; i <= Lane::kMaxTransfers; ++i) {
      (void)store_.read(id, 0, buffers.span().subspan(i * 4096, 4096));
    }
  };
  EXPECT_THROW(flood(), IoError);
}

TEST_F(StoreFaults, AReservationThatFailsLeavesNothingBehind) {
  const ExtentId earlier = store_.create("earlier", kBytes);
  store_.wait(store_.write(earlier, 0, data_.span()));
  fail_nth(4, -ENOSPC);
  plan_.armed = true;
  EXPECT_THROW(store_.create("later", kBytes), IoError);
  plan_.armed = false;
  EXPECT_FALSE(std::filesystem::exists(store_.folder() + "/later"));
  EXPECT_EQ(store_.reserved_bytes(), kBytes);
  store_.wait(store_.read(earlier, 0, in_.span()));
  EXPECT_TRUE(holds(in_.span(), 1));
  EXPECT_NO_THROW(store_.create("later", kBytes));
}

TEST_F(StoreFaults, AFailedSyncIsReportedEveryTime) {
  const ExtentId id = store_.create("weights", kBytes);
  store_.sync();
  store_.wait(store_.write(id, 0, data_.span()));
  plan_.sync_result = -EIO;
  for (int i = 0; i < 3; ++i) {
    try {
      store_.sync();
      ADD_FAILURE() << "the drive lost a write";
    } catch (const IoError& error) {
      EXPECT_EQ(error.path, store_.extent(id).path());
      EXPECT_EQ(error.error_code, EIO);
    }
  }
}

}  // namespace
}  // namespace headrace::nvme::test
