//! The fuser adapter: session threads, dispatch, unmount
