/* What is trained of a model, and on what texts, described by options: adapters beside a frozen
 * one, and packed documents. Shared by the commands that plan. */
#ifndef CLI_ADAPTER_OPTIONS_H
#define CLI_ADAPTER_OPTIONS_H

#include "cli/options.h"
#include "planner/model.h"

/* --lora, --lora-targets, --base-bits, --doc-tokens */
extern const struct option_group ADAPTER_OPTIONS;

/* Rank 0 without --lora. Whatever is not said is left as it is in *a. */
enum rc adapter_from_args(struct adapter *a, const struct args *args, struct err *e);
/* Tokens of a document, *tokens where nothing is said. */
enum rc doc_tokens_from_args(int64_t *tokens, const struct args *args, struct err *e);

#endif
