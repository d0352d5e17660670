//! Object readers, streams, windows and plans: what is fetched, and when
