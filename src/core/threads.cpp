#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace drolearn {
namespace {

// Tasks that are distributed over threads.
struct Job {
    void (*body)(void* context, std::size_t task);
    void* context;
    std::size_t tasks;
    int pool_threads;                  // how many threads of the pool may take tasks
    std::atomic<std::size_t> next{0};  // the next task to be taken
    std::atomic<bool> stopped{false};  // no further tasks are taken

    bool take(std::size_t& task) {
        if (stopped.load(std::memory_order_relaxed)) return false;
        task = next.fetch_add(1, std::memory_order_relaxed);
        return task < tasks;
    }
};

}  // namespace

// Threads that wait for jobs. There is one job at a time; its `Workers` locks `owner`.
class Pool {
  public:
    std::mutex owner;

    // Starts threads until there are `wanted`; returns how many there are.
    int grow(int wanted) {
        while (static_cast<int>(threads_.size()) < wanted) {
            try {
                const int rank = static_cast<int>(threads_.size());
                threads_.emplace_back([this, rank] { serve(rank); });
            } catch (const std::system_error&) {  // no more threads available
                break;
            }
        }
        return static_cast<int>(threads_.size());
    }

    // Offers a job to the waiting threads.
    void open(Job& job) {
        {
            const std::lock_guard lock(mutex_);
            job_ = &job;
            generation_.fetch_add(1);
        }
        wake_.notify_all();
    }

    // Ends the offer. Threads that have joined may still be running tasks.
    void close() {
        const std::lock_guard lock(mutex_);
        job_ = nullptr;
    }

    bool busy() const { return working_.load(std::memory_order_acquire) > 0; }

  private:
    void serve(int rank) {
        unsigned long seen = 0;
        while (true) {
            // The next job often follows within microseconds: spin before sleeping.
            for (int spins = 0; spins < 4000 && generation_.load() == seen; ++spins) {
            }
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return generation_.load() != seen; });
            seen = generation_.load();
            Job* job = job_;
            if (!job || rank >= job->pool_threads) continue;
            working_.fetch_add(1);
            lock.unlock();
            for (std::size_t task; job->take(task);) job->body(job->context, task);
            working_.fetch_sub(1,
                               std::memory_order_release);  // the job may be destroyed after this
        }
    }

    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_;
    Job* job_ = nullptr;
    std::atomic<unsigned long> generation_{0};
    std::atomic<int> working_{0};
};

namespace {

// Never destroyed: its threads wait until the process ends.
std::atomic<Pool*> the_pool{nullptr};

// A forked process does not inherit the threads: it creates a new pool.
void forget_pool() { the_pool.store(nullptr); }

Pool* pool() {
    Pool* existing = the_pool.load();
    if (existing) return existing;
#if defined(__unix__) || defined(__APPLE__)
    static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
    (void)registered;
#endif
    Pool* created = new (std::nothrow) Pool;
    if (created && !the_pool.compare_exchange_strong(existing, created)) {
        delete created;  // another thread was faster
        return existing;
    }
    return created;
}

}  // namespace

Workers::Workers(int threads, Check check) : check_(check) {
    if (check_) next_check_ = Clock::now() + std::chrono::milliseconds(20);
    if (threads < 2) return;
    Pool* shared = pool();
    if (!shared || !shared->owner.try_lock()) return;
    pool_threads_ = std::min(shared->grow(threads - 1), threads - 1);
    if (pool_threads_ > 0) {
        pool_ = shared;
    } else {
        shared->owner.unlock();
    }
}

Workers::~Workers() {
    if (pool_) pool_->owner.unlock();
}

bool Workers::share(std::size_t tasks, void (*body)(void*, std::size_t), void* context) {
    Job job{body, context, tasks, pool_threads_};
    pool_->open(job);
    for (std::size_t task; job.take(task);) {
        if (!poll()) job.stopped = true;
        body(context, task);
    }
    pool_->close();
    // Wait for the tasks that other threads have taken; each takes a fraction of a millisecond.
    for (int spins = 0; pool_->busy(); ++spins) {
        if (spins > 1000) std::this_thread::yield();
    }
    return !interrupted_;
}

}  // namespace drolearn
