/* Job: what is to be trained, as a form. Plans are searched anew with every good change. */
#ifndef TUI_VIEW_JOB_H
#define TUI_VIEW_JOB_H

struct view_ops;
extern const struct view_ops view_job;

#endif
