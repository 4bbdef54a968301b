/* What happens outside of the UI thread, and how its results come back. */
#ifndef TUI_WORK_H
#define TUI_WORK_H

#include <stdbool.h>

struct mailbox;
struct ui;
struct work;

struct work *work_new(struct mailbox *mb);
/* End everything that can be ended. False when a thread hangs in its source: mb must stay. */
bool work_free(struct work *w);
/* Start what the views asked for (ui->wants), and clear it. Never waits. */
void work_start(struct work *w, struct ui *ui);
/* Put results that have arrived into the state. True when something changed. Handles at most a
 * bounded number of messages, so that keys are not kept waiting. */
bool work_collect(struct work *w, struct ui *ui);

#endif
