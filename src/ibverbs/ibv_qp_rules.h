// Which attributes each move between the states of a queue pair takes: the tables that the kernel
// checks ibv_modify_qp against (ib_modify_qp_is_ok). Values only.
#pragma once

#include <infiniband/verbs.h>

#include <span>

namespace weft::ibverbs {

struct QpRule {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

inline constexpr int kStateBits = IBV_QP_STATE;

inline constexpr int kInitRc = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr int kRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
inline constexpr int kRtsOptionalUc =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
inline constexpr int kRtsOptionalRc = kRtsOptionalUc | IBV_QP_MIN_RNR_TIMER;

// RESET and ERR are reached from every state, with nothing but the state; from RESET and ERR
// nothing else leads.
inline constexpr QpRule kQpRules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitRc, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitRc},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     kRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     kRtsOptionalRc},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsOptionalRc},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsOptionalRc},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
         IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
};

// Unreliable connected queue pairs: no attribute of Reads or retries.
inline constexpr QpRule kUcRules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitRc, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitRc},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     kRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRtsOptionalUc},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsOptionalUc},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsOptionalUc},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
};

// Queue pairs for datagrams: no peer, but a key.
inline constexpr int kInitUd = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
inline constexpr int kRtsOptionalUd = IBV_QP_CUR_STATE | IBV_QP_QKEY;
inline constexpr QpRule kUdRules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitUd, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitUd},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRtsOptionalUd},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsOptionalUd},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsOptionalUd},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, kRtsOptionalUd},
};

[[nodiscard]] constexpr std::span<const QpRule> rules_of(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return kUdRules;
  return type == IBV_QPT_UC ? std::span<const QpRule>(kUcRules) : std::span<const QpRule>(kQpRules);
}

// Null: there is no such move.
[[nodiscard]] constexpr const QpRule* find_rule(ibv_qp_type type, ibv_qp_state from,
                                                ibv_qp_state to) {
  for (const QpRule& rule : rules_of(type)) {
    if (rule.from == from && rule.to == to) return &rule;
  }
  return nullptr;
}

// Whether ibv_modify_qp may go from `from` to `to` with the attributes of `mask`.
[[nodiscard]] constexpr bool move_is_legal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to,
                                           int mask) {
  const int attributes = mask & ~kStateBits;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return attributes == 0;
  const QpRule* rule = find_rule(type, from, to);
  return rule != nullptr && (attributes & rule->required) == rule->required &&
         (attributes & ~(rule->required | rule->optional)) == 0;
}

}  // namespace weft::ibverbs
